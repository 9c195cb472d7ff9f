#include "jit/kernel_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>
#include <vector>

#include "base/hash.h"

namespace heddle::jit {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'h', 'e', 'd', 'd', 'l', 'e', 'k', '\n'};
constexpr std::uint32_t kFormatVersion = 1;
constexpr const char* kSuffix = ".hdk";

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kFormatVersion;
  std::uint32_t header_bytes = sizeof(std::uint64_t) * 4 + 16;
  std::uint64_t key_bytes = 0;
  std::uint64_t code_bytes = 0;
  base::Hash128 checksum;  ///< of the key and the code
};
static_assert(sizeof(Header) == 48);

base::Hash128 checksum_of(std::string_view key, std::string_view code) {
  std::string both(key);
  both += code;
  return base::hash128(both);
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const std::streamoff bytes = file.tellg();
  if (bytes < 0) return std::nullopt;
  std::string content(static_cast<std::size_t>(bytes), '\0');
  file.seekg(0);
  file.read(content.data(), bytes);
  if (!file) return std::nullopt;
  return content;
}

/// The code in `content` if it is a whole entry of `key`.
std::optional<std::string> parse(const std::string& content, std::string_view key) {
  Header header;
  if (content.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, content.data(), sizeof header);
  if (header.magic != kMagic || header.version != kFormatVersion) return std::nullopt;
  const std::uint64_t body = content.size() - sizeof header;
  if (header.key_bytes > body || header.code_bytes != body - header.key_bytes) return std::nullopt;
  const std::string_view all = content;
  const std::string_view stored_key = all.substr(sizeof header, header.key_bytes);
  const std::string_view code = all.substr(sizeof header + header.key_bytes);
  if (stored_key != key || !(checksum_of(key, code) == header.checksum)) return std::nullopt;
  return std::string(code);
}

struct EntryFile {
  fs::path path;
  fs::file_time_type used;
  std::uint64_t bytes;
};

std::vector<EntryFile> list_entries(const std::string& folder) {
  std::vector<EntryFile> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != kSuffix) continue;
    std::error_code ignored;
    const std::uint64_t bytes = it->file_size(ignored);
    if (ignored) continue;
    const auto used = it->last_write_time(ignored);
    if (!ignored) entries.push_back({it->path(), used, bytes});
  }
  return entries;
}

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

/// Writes through a file of its own name, which then takes the place of `path`.
bool publish(const std::string& path, const std::string& content) {
  static std::atomic<unsigned> counter{0};
  const std::string temporary =
      path + "." + std::to_string(getpid()) + "." + std::to_string(counter.fetch_add(1));
  std::error_code error;
  {
    std::ofstream file(temporary, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
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

KernelCache::KernelCache(std::string folder, std::uint64_t max_bytes)
    : folder_(folder.empty() ? default_folder() : std::move(folder)), max_bytes_(max_bytes) {}

std::string KernelCache::default_folder() {
  if (std::string folder = environment("HEDDLE_CACHE_DIR"); !folder.empty()) return folder;
  if (std::string folder = environment("XDG_CACHE_HOME"); !folder.empty())
    return folder + "/heddle";
  const std::string home = environment("HOME");
  return home.empty() ? std::string() : home + "/.cache/heddle";
}

std::string KernelCache::path_of(std::string_view key) const {
  return folder_ + "/" + base::hash128(key).hex() + kSuffix;
}

std::optional<std::string> KernelCache::find(std::string_view key) {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(key);
  const auto content = read_file(path);
  if (!content) return std::nullopt;
  auto code = parse(*content, key);
  if (code) {
    std::error_code ignored;
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  }
  return code;
}

bool KernelCache::store(std::string_view key, std::string_view code) {
  if (folder_.empty()) return false;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return false;
  Header header;
  header.key_bytes = key.size();
  header.code_bytes = code.size();
  header.checksum = checksum_of(key, code);
  std::string content(reinterpret_cast<const char*>(&header), sizeof header);
  content += key;
  content += code;
  if (!publish(path_of(key), content)) return false;
  const std::lock_guard lock(mutex_);
  if (total_bytes_) *total_bytes_ += content.size();
  if (!total_bytes_ || *total_bytes_ > max_bytes_) evict();
  return true;
}

/// Counts what is there and drops the entries unused for longest until a tenth of the cap is free.
void KernelCache::evict() {
  std::vector<EntryFile> entries = list_entries(folder_);
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
