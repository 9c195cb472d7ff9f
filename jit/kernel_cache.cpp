#include "jit/kernel_cache.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/hash.h"

namespace heddle::jit {
namespace {

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

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

}  // namespace

KernelCache::KernelCache(std::string folder, std::uint64_t max_bytes)
    : files_(folder.empty() ? default_folder() : std::move(folder), kSuffix, max_bytes) {}

std::string KernelCache::default_folder() {
  if (std::string folder = environment("HEDDLE_CACHE_DIR"); !folder.empty()) return folder;
  if (std::string folder = environment("XDG_CACHE_HOME"); !folder.empty())
    return folder + "/heddle";
  const std::string home = environment("HOME");
  return home.empty() ? std::string() : home + "/.cache/heddle";
}

std::optional<std::string> KernelCache::find(std::string_view key) {
  const std::string path = files_.path_of(key);
  if (path.empty()) return std::nullopt;
  const auto content = read_file(path);
  if (!content) return std::nullopt;
  auto code = parse(*content, key);
  if (code) CacheFolder::touch(path);
  return code;
}

bool KernelCache::store(std::string_view key, std::string_view code) {
  Header header;
  header.key_bytes = key.size();
  header.code_bytes = code.size();
  header.checksum = checksum_of(key, code);
  const std::array<std::string_view, 3> parts{
      std::string_view(reinterpret_cast<const char*>(&header), sizeof header), key, code};
  return files_.publish(key, parts);
}

}  // namespace heddle::jit
