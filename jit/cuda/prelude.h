// The device functions of prelude.cuh, given out piece by piece.
#pragma once

#include <string>
#include <string_view>

namespace heddle::jit::cuda {

/// The whole of prelude.cuh.
std::string_view prelude_text();

/// The pieces of the prelude that define hd_ names used in `code`, and the pieces that those use, in
/// the prelude's order.
std::string prelude_for(std::string_view code);

}  // namespace heddle::jit::cuda
