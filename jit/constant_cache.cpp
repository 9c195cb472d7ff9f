#include "jit/constant_cache.h"

#include <array>
#include <cstring>
#include <exception>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/file_place.h"
#include "base/hash.h"
#include "heddle/mapped_file.h"
#include "jit/compile_threads.h"

namespace heddle::jit {
namespace {

constexpr std::array<char, 8> kMagic = {'h', 'e', 'd', 'd', 'l', 'e', 'c', '\n'};
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kAlign = 64;
/// Of the disk's free bytes, what a file may take.
constexpr std::uint64_t kShareOfFree = 4;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kFormatVersion;
  std::uint32_t pieces = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t file_bytes = 0;
  base::Hash128 checksum;
};
static_assert(sizeof(Header) == 48);

std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

/// What lies before the pieces.
std::size_t front_bytes(std::string_view key, std::size_t pieces) {
  return aligned(sizeof(Header) + key.size() + pieces * sizeof(std::uint64_t));
}

/// The header, the key and the sizes, as they begin a file. The checksum is of the key, the sizes and each piece.
std::string front_of(std::string_view key, std::span<const std::size_t> bytes,
                     std::span<const void* const> pieces) {
  std::string sizes;
  std::string hashed(key);
  Header header{.pieces = static_cast<std::uint32_t>(bytes.size()), .key_bytes = key.size()};
  header.file_bytes = front_bytes(key, bytes.size());
  const auto append = [](std::string& to, const auto& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (std::size_t k = 0; k < bytes.size(); ++k) {
    append(sizes, std::uint64_t{bytes[k]});
    append(hashed, base::hash128(pieces[k], bytes[k]));
    header.file_bytes += aligned(bytes[k]);
  }
  header.checksum = base::hash128(hashed + sizes);
  std::string front;
  append(front, header);
  front += key;
  front += sizes;
  front.resize(front_bytes(key, bytes.size()), '\0');
  return front;
}

}  // namespace

std::string source_key(const void* data, std::size_t bytes) {
  std::string place = base::place_in_file(data, bytes);
  if (place.empty()) place = "hash " + base::hash128(data, bytes).hex();
  return std::to_string(bytes) + " bytes of " + place;
}

ConstantCache::ConstantCache(std::string folder, std::uint64_t max_bytes)
    : files_(std::move(folder), ".hdc", max_bytes) {}

ConstantCache::~ConstantCache() { wait(); }

std::vector<ConstantCache::Piece> ConstantCache::find(std::string_view key,
                                                      std::span<const std::size_t> bytes) const {
  std::string reason;
  const std::string path = files_.path_of(key);
  if (path.empty()) return {};
  const std::shared_ptr<const MappedFile> file = MappedFile::open(path, reason);
  if (file == nullptr) return {};
  std::size_t at = front_bytes(key, bytes.size());
  std::vector<const void*> places;
  for (const std::size_t each : bytes) {
    if (at > file->size() || each > file->size() - at) return {};
    places.push_back(file->data() + at);
    at += aligned(each);
  }
  if (at != file->size()) return {};
  const std::string front = front_of(key, bytes, places);
  if (std::memcmp(front.data(), file->data(), front.size()) != 0) return {};
  CacheFolder::touch(path);
  found_bytes_ += std::reduce(bytes.begin(), bytes.end(), std::uint64_t{0});
  std::vector<Piece> pieces;
  for (const void* place : places) pieces.emplace_back(file, place);
  return pieces;
}

bool ConstantCache::has(std::string_view key) const {
  const std::string path = files_.path_of(key);
  std::error_code error;
  return !path.empty() && std::filesystem::exists(path, error);
}

void ConstantCache::store(std::string key, std::vector<Piece> pieces,
                          std::vector<std::size_t> bytes) {
  const std::lock_guard lock(mutex_);
  queue_.push_back({std::move(key), std::move(pieces), std::move(bytes)});
  if (queue_.size() > 1) return;
  if (!start_compile_thread([this] { write_all(); })) queue_.clear();
}

void ConstantCache::wait() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return queue_.empty(); });
}

void ConstantCache::write_all() {
  std::unique_lock lock(mutex_);
  while (!queue_.empty()) {
    const Entry& entry = queue_.front();
    lock.unlock();
    write(entry);
    lock.lock();
    queue_.pop_front();
  }
  idle_.notify_all();
}

void ConstantCache::write(const Entry& entry) {
  try {
    std::error_code error;
    const std::filesystem::path folder = files_.folder();
    std::filesystem::create_directories(folder, error);
    const std::filesystem::space_info space = std::filesystem::space(folder, error);
    const auto total = std::reduce(entry.bytes.begin(), entry.bytes.end(), std::uint64_t{0});
    if (error || total > space.available / kShareOfFree) return;
    std::vector<const void*> places;
    for (const Piece& piece : entry.pieces) places.push_back(piece.get());
    const std::string front = front_of(entry.key, entry.bytes, places);
    const std::string padding(kAlign, '\0');
    std::vector<std::string_view> parts{front};
    for (std::size_t k = 0; k < places.size(); ++k) {
      parts.emplace_back(static_cast<const char*>(places[k]), entry.bytes[k]);
      parts.push_back(
          std::string_view(padding).substr(0, aligned(entry.bytes[k]) - entry.bytes[k]));
    }
    files_.publish(entry.key, parts);
  } catch (const std::exception&) {  // memory is short: the next process makes them too
  }
}

}  // namespace heddle::jit
