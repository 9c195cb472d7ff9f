#include "jit/cache_folder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace heddle::jit {
namespace {

namespace fs = std::filesystem;

/// A file that is still being written is this old at most.
constexpr std::chrono::hours kLongestWrite{1};

struct EntryFile {
  fs::path path;
  fs::file_time_type used;
  std::uint64_t bytes;
};

/// What a writer that was killed left behind: publish() gives such names.
bool is_abandoned(const fs::path& path, const std::string& suffix, fs::file_time_type used) {
  return path.filename().string().find(suffix + ".") != std::string::npos &&
         used < fs::file_time_type::clock::now() - kLongestWrite;
}

/// The entries; files that writers abandoned are removed.
std::vector<EntryFile> list_entries(const std::string& folder, const std::string& suffix) {
  std::vector<EntryFile> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const bool is_entry = it->path().extension() == suffix;
    if (!is_entry && it->path().filename().string().find(suffix) == std::string::npos) continue;
    std::error_code ignored;
    const std::uint64_t bytes = it->file_size(ignored);
    if (ignored) continue;
    const auto used = it->last_write_time(ignored);
    if (ignored) continue;
    if (is_entry)
      entries.push_back({it->path(), used, bytes});
    else if (is_abandoned(it->path(), suffix, used))
      fs::remove(it->path(), ignored);
  }
  return entries;
}

/// Bytes that a file is written in at a time. Where a file system keeps files in huge pages, it takes such pieces at
/// multiples of their size for that, and what is mapped later needs few page faults.
constexpr std::size_t kPiece = std::size_t{2} << 20;

/// Writes `parts` in pieces that begin at multiples of kPiece.
void write_pieces(std::ofstream& file, std::span<const std::string_view> parts) {
  std::string piece;
  const auto flush = [&] {
    file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
    piece.clear();
  };
  for (std::string_view part : parts)
    while (!part.empty()) {
      const std::string_view taken = part.substr(0, kPiece - piece.size());
      piece += taken;
      part.remove_prefix(taken.size());
      if (piece.size() == kPiece) flush();
    }
  flush();
}

/// Writes through a file of its own name, which then takes the place of `path`.
bool replace(const std::string& path, std::span<const std::string_view> parts) {
  static std::atomic<unsigned> counter{0};
  const std::string temporary =
      path + "." + std::to_string(getpid()) + "." + std::to_string(counter.fetch_add(1));
  std::error_code error;
  {
    std::ofstream file(temporary, std::ios::binary);
    write_pieces(file, parts);
    file.close();
    if (!file) {
      fs::remove(temporary, error);
      return false;
    }
  }
  fs::rename(temporary, path, error);
  if (!error) return true;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return false;
}

}  // namespace

CacheFolder::CacheFolder(std::string folder, std::string suffix, std::uint64_t max_bytes)
    : folder_(std::move(folder)), suffix_(std::move(suffix)), max_bytes_(max_bytes) {}

std::string CacheFolder::path_of(std::string_view key) const {
  if (folder_.empty()) return {};
  return folder_ + "/" + base::hash128(key).hex() + suffix_;
}

void CacheFolder::touch(const std::string& path) {
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

bool CacheFolder::publish(std::string_view key, std::span<const std::string_view> parts) {
  std::uint64_t bytes = 0;
  for (const std::string_view part : parts) bytes += part.size();
  if (folder_.empty() || bytes > max_bytes_) return false;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error || !replace(path_of(key), parts)) return false;
  const std::lock_guard lock(mutex_);
  if (total_bytes_) *total_bytes_ += bytes;
  if (!total_bytes_ || *total_bytes_ > max_bytes_) evict();
  return true;
}

/// Counts what is there and drops the entries unused for longest until a tenth of the cap is free.
void CacheFolder::evict() {
  std::vector<EntryFile> entries = list_entries(folder_, suffix_);
  std::uint64_t total = 0;
  for (const EntryFile& entry : entries) total += entry.bytes;
  if (total > max_bytes_) {
    std::sort(entries.begin(), entries.end(),
              [](const EntryFile& a, const EntryFile& b) { return a.used < b.used; });
    for (const EntryFile& entry : entries) {
      if (total <= max_bytes_ - max_bytes_ / 10) break;
      std::error_code error;
      if (fs::remove(entry.path, error)) total -= entry.bytes;
    }
  }
  total_bytes_ = total;
}

}  // namespace heddle::jit
