// Heddle: an in-process runtime JIT execution engine for tensor graphs. Everything an embedder needs.
#pragma once

#include "heddle/annotate.h"
#include "heddle/control_flow.h"
#include "heddle/cuda_text.h"
#include "heddle/custom_op.h"
#include "heddle/device.h"
#include "heddle/dlpack.h"
#include "heddle/dtype.h"
#include "heddle/engine.h"
#include "heddle/error.h"
#include "heddle/kernel_call.h"
#include "heddle/ops.h"
#include "heddle/stop.h"
#include "heddle/structure.h"
#include "heddle/symint.h"
#include "heddle/tensor.h"
