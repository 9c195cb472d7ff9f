/* Custom ops registered from C, or from any language that can call C.
 *
 * Functions return a status: HEDDLE_OK, or the kind of error, whose text heddle_last_error() gives on the
 * same thread. See heddle/custom_op.h for what schemas and flags mean.
 */
#ifndef HEDDLE_CUSTOM_OP_C_H
#define HEDDLE_CUSTOM_OP_C_H

#include <stdint.h>

#include "heddle/c_status.h"

typedef struct heddle_kernel_tensor {
  void* data;    /* null: an absent optional argument, or only sizes are asked about */
  int32_t dtype; /* heddle_dtype */
  int32_t rank;
  const int64_t* sizes;
  const int64_t* strides; /* in elements */
} heddle_kernel_tensor;

/* The attributes of a call; opaque. */
typedef struct heddle_attributes heddle_attributes;

typedef struct heddle_kernel_call {
  int32_t tensor_count;
  const heddle_kernel_tensor* tensors;
  int32_t result_count;
  const heddle_kernel_tensor* results;
  void* workspace; /* 64-aligned, this thread's own */
  int64_t workspace_bytes;
  int64_t begin, end; /* the part of [0, extent) to do */
  int32_t worker, workers;
  const heddle_attributes* attributes;
} heddle_kernel_call;

/* An attribute of the call. The schema decides whether there is one of this name and kind; where there is
 * none the call fails with an error that names it, and 0 is returned. */
HEDDLE_C_API int64_t heddle_attribute_int(const heddle_attributes* attributes, const char* name);
HEDDLE_C_API double heddle_attribute_float(const heddle_attributes* attributes, const char* name);
HEDDLE_C_API int heddle_attribute_bool(const heddle_attributes* attributes, const char* name);

/* Sizes while they are still symbols: opaque handles, valid during the shape function. */
typedef struct heddle_shape_call heddle_shape_call;
typedef int32_t heddle_size;

/* Rank of tensor argument `argument`; -1 when it is absent. */
HEDDLE_C_API int32_t heddle_shape_rank(heddle_shape_call* call, int32_t argument);
HEDDLE_C_API int32_t heddle_shape_dtype(heddle_shape_call* call, int32_t argument);
HEDDLE_C_API heddle_size heddle_shape_size(heddle_shape_call* call, int32_t argument,
                                           int32_t dimension);
HEDDLE_C_API heddle_size heddle_shape_number(heddle_shape_call* call, int64_t value);
HEDDLE_C_API int64_t heddle_shape_int(heddle_shape_call* call, const char* attribute);
HEDDLE_C_API heddle_size heddle_size_add(heddle_shape_call* call, heddle_size a, heddle_size b);
HEDDLE_C_API heddle_size heddle_size_mul(heddle_shape_call* call, heddle_size a, heddle_size b);
/* A new size that depends on the elements of the arguments: heddle_custom_op::sizes tells it at run time. */
HEDDLE_C_API heddle_size heddle_shape_unbacked(heddle_shape_call* call);
/* Appends a result of this type. */
HEDDLE_C_API void heddle_shape_result(heddle_shape_call* call, int32_t dtype, int32_t rank,
                                      const heddle_size* sizes);

/* Takes the sizes of results that only the run tells; opaque. */
typedef struct heddle_told_sizes heddle_told_sizes;
/* Appends the sizes of the next result. */
HEDDLE_C_API void heddle_tell_sizes(heddle_told_sizes* told, int32_t rank, const int64_t* sizes);

typedef struct heddle_custom_op {
  const char* schema;
  /* Calls heddle_shape_result() once a result. Returns null, or the text of an error. May be null. */
  const char* (*shape)(heddle_shape_call* call, void* user);
  /* Returns null, or the text of an error, which must stay valid until the next call on the thread. */
  const char* (*cpu)(const heddle_kernel_call* call, void* user);
  int64_t (*workspace_bytes)(const heddle_kernel_call* call, void* user); /* may be null */
  int64_t (*extent)(const heddle_kernel_call* call, void* user);          /* may be null */
  void* user; /* handed to every function; must live as long as the process */
  /* Flags. Capturable: what `cuda` queues depends on nothing but addresses, sizes and attributes, comes on its `stream` alone,
   * and neither allocates nor waits; it may be replayed without a call, and is called again for other addresses and sizes. Only
   * of pure ops: others are called at each run. */
  int pure, capturable, collective;
  /* As `cpu`, but queues the work on `stream` (a CUstream) and waits for nothing: addresses are the device's. May be
   * null: the op does not run on CUDA. */
  const char* (*cuda)(const heddle_kernel_call* call, void* stream, void* user);
  /* Where the shape function gave sizes of heddle_shape_unbacked(): called before the kernel, without results and with
   * the elements of the arguments in memory of the host; calls heddle_tell_sizes() once a result. Returns null, or the
   * text of an error. May be null. */
  const char* (*sizes)(const heddle_kernel_call* call, heddle_told_sizes* told, void* user);
  /* On CUDA in place of `sizes`, which needs copies of all arguments on the host: queues on `stream` work that writes the
   * sizes of the results, one after another, to `told`, on the device. May be null. */
  const char* (*cuda_sizes)(const heddle_kernel_call* call, int64_t* told, void* stream,
                            void* user);
} heddle_custom_op;

/* Registers `op` for as long as the process lives. */
HEDDLE_C_API heddle_status heddle_register_op(const heddle_custom_op* op);

#endif
