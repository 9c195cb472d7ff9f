// What the simulator and a kernel compiled for it share. Includes nothing: kernels see it too.
#pragma once

struct heddle_sim_uint3 {
  unsigned int x, y, z;
};

/// One for the process: a block runs at a time, and of its threads one.
struct heddle_sim_state {
  heddle_sim_uint3 thread;
  heddle_sim_uint3 block;
  heddle_sim_uint3 block_size;
  heddle_sim_uint3 grid_size;
  void (*barrier)();
  unsigned int (*shuffle_xor)(unsigned int value, int mask);
  unsigned char* dynamic_shared;
};
