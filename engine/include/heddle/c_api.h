/* Heddle from C, or from any language that can call C: the C++ API (heddle/heddle.h) with status codes.
 *
 * Functions that can fail return a status, and heddle_last_error() gives the text on the same thread; what they
 * were to make is left alone then. Handles are freed by their own functions, which take null too. An engine may be
 * used by any number of threads at once; a handle of a tensor is freed once.
 */
#ifndef HEDDLE_C_API_H
#define HEDDLE_C_API_H

#include <stddef.h>
#include <stdint.h>

#include "heddle/c_status.h"

struct DLManagedTensorVersioned; /* <dlpack/dlpack.h> of DLPack 1.x */

typedef struct heddle_tensor heddle_tensor;
typedef struct heddle_engine heddle_engine;
typedef struct heddle_stop heddle_stop;

/* ---- Tensors. A handle shares its memory with every handle that was made from it. ---- */

/* Uninitialised and row-major. */
HEDDLE_C_API heddle_status heddle_tensor_empty(heddle_dtype dtype, int32_t rank,
                                               const int64_t* sizes, heddle_tensor** tensor);
/* The caller's memory. `strides`, in elements, may be null: row-major. `deleter`, unless null, is called once with
 * `data` and `user` when nothing uses the memory any more. */
HEDDLE_C_API heddle_status heddle_tensor_wrap(void* data, heddle_dtype dtype, int32_t rank,
                                              const int64_t* sizes, const int64_t* strides,
                                              void (*deleter)(void* data, void* user), void* user,
                                              heddle_tensor** tensor);
/* Owns `managed` when it succeeds. */
HEDDLE_C_API heddle_status heddle_tensor_from_dlpack(struct DLManagedTensorVersioned* managed,
                                                     heddle_tensor** tensor);
HEDDLE_C_API heddle_status heddle_tensor_to_dlpack(const heddle_tensor* tensor,
                                                   struct DLManagedTensorVersioned** managed);
HEDDLE_C_API void heddle_tensor_free(heddle_tensor* tensor);

HEDDLE_C_API heddle_dtype heddle_tensor_dtype(const heddle_tensor* tensor);
HEDDLE_C_API int32_t heddle_tensor_rank(const heddle_tensor* tensor);
/* Of a tensor with data; valid as long as the handle. Null for a symbolic tensor. */
HEDDLE_C_API const int64_t* heddle_tensor_sizes(const heddle_tensor* tensor);
HEDDLE_C_API const int64_t* heddle_tensor_strides(const heddle_tensor* tensor);
/* In the memory of the tensor's device. */
HEDDLE_C_API void* heddle_tensor_data(const heddle_tensor* tensor);
/* The same elements on `device`, "cpu" or "cuda:1": another handle, which shares the memory if that is where they are. */
HEDDLE_C_API heddle_status heddle_tensor_to(const heddle_tensor* tensor, const char* device,
                                            heddle_tensor** moved);

/* The `length` elements from `start` on along `axis`: another handle, which shares the memory. */
HEDDLE_C_API heddle_status heddle_tensor_narrow(const heddle_tensor* tensor, int32_t axis,
                                                int64_t start, int64_t length,
                                                heddle_tensor** part);

/* ---- Engines. ---- */

/* What is 0 or null is left to the environment and to defaults. Make it with heddle_options_init(). */
typedef struct heddle_options {
  size_t struct_size;
  const char* device; /* "cpu", "cuda", "cuda:1" */
  int threads;        /* worker threads of one call */
  int no_disk_cache;  /* keep no compiled kernels on disk */
  const char* cache_dir;
  /* Names of inputs whose memory each call gives away: an output of heddle_engine_run_into() may be exactly the memory of
   * one, and what it holds afterwards is the engine's business. */
  const char* const* donate;
  size_t donate_count;
  size_t memory_cap; /* bytes that may be held in the memory of the device, by all engines on it */
  size_t
      pinned_memory_cap; /* the same of the host's memory that a CUDA device copies from and to */
  const char* cpu;       /* the processor that kernels are made for, by LLVM's name: "x86-64-v4" */
  /* Names of inputs that calls append to where they lie, such as caches: an output of heddle_engine_run() that begins with one is a
   * tensor with strides and room to grow, which the next call is given as the input. heddle_engine_run_into() copies it. */
  const char* const* append;
  size_t append_count;
  int64_t append_room; /* the least room that such an input is given along its axis */
} heddle_options;
HEDDLE_C_API void heddle_options_init(heddle_options* options);

/* `options` may be null. */
HEDDLE_C_API heddle_status heddle_engine_load_onnx(const char* path, const heddle_options* options,
                                                   heddle_engine** engine);
/* `folder`: where external data lies; null for a model without. The bytes are not used afterwards. */
HEDDLE_C_API heddle_status heddle_engine_load_onnx_bytes(const void* data, size_t size,
                                                         const char* folder,
                                                         const heddle_options* options,
                                                         heddle_engine** engine);
HEDDLE_C_API heddle_status heddle_engine_parse_ir(const char* text, const heddle_options* options,
                                                  heddle_engine** engine);

/* A callable: builds its results from symbolic tensors with heddle_apply(). It puts `result_count` handles, which
 * the engine frees, into `results`. Returns null, or why it failed, which must stay valid until the thread's next
 * call. It is pure, and called once for every way in which its guards can fall. */
typedef const char* (*heddle_callable)(heddle_tensor* const* inputs, size_t input_count,
                                       heddle_tensor** results, size_t result_count, void* user);
HEDDLE_C_API heddle_status heddle_engine_trace(heddle_callable callable, void* user,
                                               size_t result_count, const heddle_options* options,
                                               heddle_engine** engine);
HEDDLE_C_API void heddle_engine_free(heddle_engine* engine);

typedef HEDDLE_C_ENUM(heddle_attr_kind){HEDDLE_ATTR_INT,    HEDDLE_ATTR_FLOAT,
                                        HEDDLE_ATTR_BOOL,                      /* in integer */
                                        HEDDLE_ATTR_STRING, HEDDLE_ATTR_DTYPE, /* in integer */
                                        HEDDLE_ATTR_INTS,   HEDDLE_ATTR_FLOATS} heddle_attr_kind;

typedef struct heddle_attr {
  const char* name;
  heddle_attr_kind kind;
  int64_t integer;
  double number;
  const char* string;
  const int64_t* integers;
  const double* numbers;
  size_t count; /* of integers or numbers */
} heddle_attr;

/* Any op by its IR name: on symbolic tensors inside a callable, on tensors with data at once. A null operand is an
 * absent optional one. Fills `results`, which must have room for as many as the op gives. */
HEDDLE_C_API heddle_status heddle_apply(const char* op, heddle_tensor* const* operands,
                                        size_t operand_count, const heddle_attr* attrs,
                                        size_t attr_count, heddle_tensor** results,
                                        size_t result_count);

/* Fills `outputs` with new handles; `output_count` must be what the graph gives. */
HEDDLE_C_API heddle_status heddle_engine_run(heddle_engine* engine, heddle_tensor* const* inputs,
                                             size_t input_count, heddle_tensor** outputs,
                                             size_t output_count);
/* Into the caller's row-major tensors; allocates nothing once the sizes have been seen. */
HEDDLE_C_API heddle_status heddle_engine_run_into(heddle_engine* engine,
                                                  heddle_tensor* const* inputs, size_t input_count,
                                                  heddle_tensor* const* outputs,
                                                  size_t output_count);
/* Gets the handles of the results, which it frees, in an array that lasts as long as the call; or, where `status` says so, why the call failed
 * (heddle_last_error()). */
typedef void (*heddle_done)(heddle_status status, heddle_tensor* const* outputs,
                            size_t output_count, void* user);
/* Runs on a thread of the engine, which calls `done` in the end; there are as many as processors. Inputs may be freed at once.
 * heddle_engine_free() waits for calls that were submitted. */
HEDDLE_C_API heddle_status heddle_engine_submit(heddle_engine* engine, heddle_tensor* const* inputs,
                                                size_t input_count, heddle_done done, void* user);
/* What ends calls early: those of a thread that watches it end with HEDDLE_ERROR_CANCELLED once it is requested. heddle/stop.h says where
 * they do, and what holds then. */
HEDDLE_C_API heddle_status heddle_stop_create(heddle_stop** stop);
/* From any thread, at any time. */
HEDDLE_C_API void heddle_stop_request(heddle_stop* stop);
/* Those who watch it are not asked any more. */
HEDDLE_C_API void heddle_stop_destroy(heddle_stop* stop);
/* heddle_engine_run() and heddle_engine_run_into() on this thread watch it from here on; null: none. */
HEDDLE_C_API heddle_status heddle_stop_watch(heddle_stop* stop);
/* Compiles for inputs such as these without running. */
HEDDLE_C_API heddle_status heddle_engine_prepare(heddle_engine* engine,
                                                 heddle_tensor* const* inputs, size_t input_count);
/* New elements for a parameter, of the same type; calls may run meanwhile. */
HEDDLE_C_API heddle_status heddle_engine_update_parameter(heddle_engine* engine, const char* name,
                                                          const heddle_tensor* value);

/* What an engine did so far. */
typedef struct heddle_stats {
  uint64_t traces;           /* how often the callable was called */
  uint64_t compiles;         /* graphs compiled */
  uint64_t found_plans;      /* of these, ones whose plan was on disk */
  uint64_t binds;            /* plans bound to new sizes */
  uint64_t runs;             /* calls */
  uint64_t kernels;          /* distinct compiled functions in use */
  uint64_t kernels_compiled; /* that neither memory nor disk had */
  uint64_t disk_hits;        /* kernels found on disk */
  double load_ms;            /* reading and checking a model file */
  double compile_ms;         /* tracing to what can run, in total */
  uint64_t arena_peak_bytes; /* of one call */
} heddle_stats;
HEDDLE_C_API heddle_status heddle_engine_stats(const heddle_engine* engine, heddle_stats* stats);

/* Bytes that the process holds for all its engines and tensors. */
typedef struct heddle_memory_pool {
  size_t in_use_bytes;
  size_t cached_bytes; /* kept for the next who asks */
  size_t peak_bytes;   /* the most that were in use at a time */
  size_t cap_bytes;    /* 0: none */
} heddle_memory_pool;
typedef struct heddle_memory {
  heddle_memory_pool host;
  heddle_memory_pool device; /* CUDA: of the engine's device */
  heddle_memory_pool pinned; /* CUDA: memory of the host that it copies from and to */
} heddle_memory;
HEDDLE_C_API heddle_status heddle_engine_memory(const heddle_engine* engine, heddle_memory* memory);
/* Gives back what no call and no tensor uses. `bytes`, which may be null, gets how many those were. */
HEDDLE_C_API heddle_status heddle_engine_trim(heddle_engine* engine, size_t* bytes);

/* What is known of an input or output: of a model from the start, of a callable after its first call. */
typedef struct heddle_value_info {
  const char* name; /* valid until the next call of a _info function on this thread */
  heddle_dtype dtype;
  int32_t rank;
  const int64_t* sizes; /* as long as the name; -1: any size */
  int32_t is_text;      /* not 0: its elements, HEDDLE_I64, are codes of strings */
  /* Of an output that the model gives as maps: their keys, one for each column; valid as long as the name. */
  size_t column_count;
  const char* const* columns;
  /* Of an output, after the first call: the input that it lies in, with what a call appends or overwrites; "": none. */
  const char* lies_in;
} heddle_value_info;
HEDDLE_C_API size_t heddle_engine_input_count(const heddle_engine* engine);
HEDDLE_C_API size_t heddle_engine_output_count(const heddle_engine* engine);
HEDDLE_C_API heddle_status heddle_engine_input_info(const heddle_engine* engine, size_t index,
                                                    heddle_value_info* info);
HEDDLE_C_API heddle_status heddle_engine_output_info(const heddle_engine* engine, size_t index,
                                                     heddle_value_info* info);
/* The strings of a model, which codes from 0 on stand for, in the order of their bytes. Others that a caller puts in have codes of
 * the caller's choice outside of these; they equal nothing but themselves. `engine` is not null. */
HEDDLE_C_API size_t heddle_engine_string_count(const heddle_engine* engine);
/* UTF-8 of `length` bytes, then 0; valid as long as the engine. */
HEDDLE_C_API heddle_status heddle_engine_string(const heddle_engine* engine, int64_t code,
                                                const char** string, size_t* length);
/* -1: the model has no such string. */
HEDDLE_C_API int64_t heddle_engine_code_of(const heddle_engine* engine, const char* string,
                                           size_t length);

/* The plan for inputs such as these as a JSON document, to be freed with heddle_string_free(). */
HEDDLE_C_API heddle_status heddle_engine_plan_json(heddle_engine* engine,
                                                   heddle_tensor* const* inputs, size_t input_count,
                                                   char** json);
HEDDLE_C_API void heddle_string_free(char* string);

/* "0.1.0" */
HEDDLE_C_API const char* heddle_version(void);

#endif
