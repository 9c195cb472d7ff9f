// What is behind a CudaText.
#pragma once

#include "heddle/cuda_text.h"
#include "ir/custom_op.h"

namespace heddle {

struct CudaText::Text : ir::KernelText {};

}  // namespace heddle
