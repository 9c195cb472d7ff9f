// Numbers of IR text: the shortest decimal that reads back as the same value of its dtype.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "heddle/dtype.h"
#include "ir/literal.h"

namespace heddle::ir {

/// "1.0", "1e-05", "-inf", "nan".
std::string float_text(DType dtype, double value);
/// Element `position` of `literal`: a float as above, an integer, "true" or "false".
std::string element_text(const Literal& literal, std::int64_t position);
/// The double that `text` is; nothing when it is no number.
std::optional<double> float_value(std::string_view text);
std::optional<std::int64_t> int_value(std::string_view text);
std::optional<std::uint64_t> unsigned_value(std::string_view text);

/// `text` in quotes, with \" \\ \n \t and \xHH for other control characters.
std::string in_quotes(std::string_view text);

}  // namespace heddle::ir
