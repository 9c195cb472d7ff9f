/* Status codes, element types and error texts of the C API. */
#ifndef HEDDLE_C_STATUS_H
#define HEDDLE_C_STATUS_H

#ifdef __cplusplus
#define HEDDLE_C_API extern "C" __attribute__((visibility("default")))
#else
#define HEDDLE_C_API
#endif

/* C++ is told the type of enumerations, so that a number from C that is none of theirs is an error. */
#ifdef __cplusplus
#define HEDDLE_C_ENUM(name) enum name : int
#else
#define HEDDLE_C_ENUM(name) enum name
#endif

/* Each is the class of error of the C++ API (heddle/error.h) that a call ended with. */
typedef HEDDLE_C_ENUM(heddle_status){
    HEDDLE_OK = 0,
    HEDDLE_ERROR_ARGUMENT =
        1,                  /* wrong count, name or value; a null pointer; a name that is taken */
    HEDDLE_ERROR_PARSE = 2, /* text that does not parse; the message names line or column */
    HEDDLE_ERROR_INTERNAL = 3, /* anything that is not listed */
    HEDDLE_ERROR_SHAPE = 4,
    HEDDLE_ERROR_DTYPE = 5,
    HEDDLE_ERROR_DEVICE = 6,
    HEDDLE_ERROR_DEVICE_LOST = 7, /* make the engine anew */
    HEDDLE_ERROR_INDEX = 8,
    HEDDLE_ERROR_TRACE = 9,
    HEDDLE_ERROR_ALIASING = 10,
    HEDDLE_ERROR_MODEL = 11,
    HEDDLE_ERROR_UNSUPPORTED = 12,
    HEDDLE_ERROR_OPTION = 13,
    HEDDLE_ERROR_COMPILE = 14,
    HEDDLE_ERROR_OUT_OF_MEMORY = 15,
    HEDDLE_ERROR_CALLBACK = 16, /* a function of the caller said that it failed */
    HEDDLE_ERROR_CANCELLED = 17 /* a call that its caller ended (heddle_stop_request()) */
} heddle_status;

/* Element types, in the order of heddle::DType. */
typedef HEDDLE_C_ENUM(heddle_dtype){HEDDLE_F32 = 0, HEDDLE_F64, HEDDLE_F16, HEDDLE_BF16, HEDDLE_I8,
                                    HEDDLE_U8, HEDDLE_I16, HEDDLE_I32, HEDDLE_I64, HEDDLE_BOOL,
                                    HEDDLE_U16, HEDDLE_U32, HEDDLE_U64,
                                    /* storage alone: converted to another type for arithmetic */
                                    HEDDLE_F8E4M3FN, HEDDLE_F8E4M3FNUZ, HEDDLE_F8E5M2,
                                    HEDDLE_F8E5M2FNUZ, HEDDLE_F8E8M0FNU} heddle_dtype;

/* The text of the last error on this thread; "" if there was none. Valid until the next error. */
HEDDLE_C_API const char* heddle_last_error(void);

#endif
