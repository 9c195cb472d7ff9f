// What the simulator and a kernel compiled for it share. Includes nothing: kernels see it too.
#pragma once

struct heddle_sim_uint3 {
  unsigned int x, y, z;
};

/// One for each loaded image: a block runs at a time, and of its threads one.
struct heddle_sim_state {
  heddle_sim_uint3 thread;
  heddle_sim_uint3 block;
  heddle_sim_uint3 block_size;
  heddle_sim_uint3 grid_size;
  void (*barrier)();
  unsigned int (*shuffle_xor)(unsigned int value, int mask);
  unsigned char* dynamic_shared;
  /// Called before a kernel touches memory through a pointer. Kinds: 0 read, 1 write, 2 atomic update.
  void (*access)(unsigned long address, unsigned long bytes, int kind);
  /// Called where what the kernel does has no meaning; `line` of its text. Does not return.
  void (*undefined)(const char* what, unsigned int line);
};
