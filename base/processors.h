// How many processors the process has.
#pragma once

#include <filesystem>
#include <optional>

namespace heddle::base {

/// Processors that the process may use at a time, at least 1: those that it may run on, but no more than the time that its control groups
/// leave it of them, rounded up. A container of a large machine often has the time of two of its sixty-four. Looked up once.
int processors();

/// Processors that the calling thread may run on: those of its affinity, which cpusets narrow.
int allowed_processors();

/// The least quota of processor time of the process's control groups, in processors: 1.5 is 150 ms in every 100. Nothing: none has one.
/// Of version 2 and of version 1, whose files are described in the Linux kernel's documentation: "Control Group v2" and "CFS Bandwidth
/// Control".
/// @param root  where /proc and what is mounted lie: "/", or elsewhere for tests
std::optional<double> processor_quota(const std::filesystem::path& root = "/");

}  // namespace heddle::base
