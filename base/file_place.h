// Bytes of mapped files: where they come from, as what knows them again without reading them, and those that nobody reads any more.
#pragma once

#include <cstddef>
#include <string>

namespace heddle::base {

/// Tells the bytes at `data` from all others that a file ever held: the file's device, inode, size, times of change and
/// the offset in it. Equal texts, also in another process, mean equal bytes. Empty where that does not hold, and for bytes
/// that lie in no MappedFile.
///
/// It holds on file systems of a local disk (ext4, XFS, Btrfs, F2FS), whose kernel sets the time of change, in nanoseconds, at each
/// change, whoever makes it; no program can set it back. Images built to have equal times, network and user-space file systems, and
/// overlays that may hide one of these, do not promise it. A writer that maps the file may write after the time that its first
/// write set, until the page is written back, half a minute later at most: a file that changed in the minute before it
/// was opened has no place either.
///
/// Threads: any.
std::string place_in_file(const void* data, std::size_t bytes);

/// Takes the pages that lie wholly within these bytes of a MappedFile out of the process's memory: who reads them again has them
/// from the file, as at first. Does nothing for bytes that lie in no MappedFile.
///
/// Threads: any, also while others read them.
void give_back_pages(const void* data, std::size_t bytes);

}  // namespace heddle::base
