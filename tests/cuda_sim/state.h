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
  void (*fence)();  ///< of the thread, for the whole device
  void (
      *proxy_fence)();  ///< of the thread: products of warpgroups see what it wrote to shared memory
  unsigned int (*shuffle_xor)(unsigned int value, int mask);
  /// What the lanes of the warp bring: `count` words of lane k from word k * count on, until its next exchange. At
  /// most 8 words; all lanes of a warp bring as many.
  const unsigned int* (*exchange)(const unsigned int* words, unsigned int count);
  /// Asynchronous copies of the thread, in groups. The memory is written when they are waited for.
  void (*copy)(void* to, const void* from, unsigned int bytes, unsigned int valid);
  void (*commit_copies)();
  void (*wait_copies)(unsigned int pending);
  /// Work of the thread that goes on while it does other things, in groups: done no sooner than it is waited for. `data`, at most
  /// 256 bytes, is copied.
  void (*defer)(void (*work)(const void* data), const void* data, unsigned int bytes);
  void (*commit_work)();
  void (*wait_work)(unsigned int pending);
  /// An mbarrier in shared memory: made for so many arrivals a phase; one arrival of the thread, or one that comes when the copies are
  /// done that it has begun, no sooner than somebody waits for nothing else; a wait for the phase of that parity to end.
  void (*mbarrier_init)(void* at, unsigned int arrivals);
  void (*mbarrier_arrive)(void* at);
  void (*mbarrier_arrive_copies)(void* at);
  void (*mbarrier_wait)(void* at, unsigned int parity);
  /// Barrier `number` of the block, of so many threads, of which some do not wait.
  void (*named_barrier)(unsigned int number, unsigned int threads, bool waits);
  unsigned char* dynamic_shared;
  /// Called before a kernel touches memory through a pointer. Kinds: 0 read, 1 write, 2 atomic update, 3 the same of a
  /// counter that wraps, which only launches in order may share, 4 read by a product of a warpgroup. `site`: where in the kernel's code, for the meter; null:
  /// it is part of what `meter` tells.
  void (*access)(unsigned long address, unsigned long bytes, int kind, const void* site);
  /// An access whose parts are checked each by itself.
  void (*meter)(unsigned long address, unsigned long bytes, int kind, const void* site);
  /// Called where what the kernel does has no meaning; `line` of its text. Does not return.
  void (*undefined)(const char* what, unsigned int line);
};
