// Errors that say more of where they come from.
#pragma once

#include <string_view>

#include "heddle/error.h"

namespace heddle::base {

/// Throws `error` as one of its class that says `parts`, if its class is one of error.h; what is nested in it stays so. Call
/// it where `error` is being handled.
void rethrow_as(const Error& error, const Error::Parts& parts);

/// Throws `error` as one of its class with "<label>: " before its text, if its class is one of error.h; what is nested in it
/// stays so. Call it where `error` is being handled.
void rethrow_labelled(const Error& error, std::string_view label);

}  // namespace heddle::base
