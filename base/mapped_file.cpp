#include "heddle/mapped_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>

#include "base/file_place.h"

namespace heddle {

namespace {

/// f_type of ext2 to ext4, XFS, Btrfs and F2FS.
constexpr std::array<std::uint32_t, 4> kLocalDisks = {0xEF53, 0x58465342, 0x9123683E, 0xF2F52010};
/// Seconds without a change after which pages that a writer mapped are written back.
constexpr std::time_t kSettled = 60;

/// Of a file that is open; empty where equal ones need not mean equal bytes.
std::string identity_of(int file, const struct stat& info) {
  struct statfs system{};
  if (::fstatfs(file, &system) != 0) return {};
  const auto type = static_cast<std::uint32_t>(system.f_type);
  if (std::find(kLocalDisks.begin(), kLocalDisks.end(), type) == kLocalDisks.end()) return {};
  // Times in whole seconds come from an image, not from a change.
  if (info.st_ctim.tv_nsec == 0 || info.st_ctim.tv_sec + kSettled > std::time(nullptr)) return {};
  std::string text = "file";
  for (const std::uint64_t number :
       {std::uint64_t{info.st_dev}, std::uint64_t{info.st_ino},
        static_cast<std::uint64_t>(info.st_size), static_cast<std::uint64_t>(info.st_mtim.tv_sec),
        static_cast<std::uint64_t>(info.st_mtim.tv_nsec),
        static_cast<std::uint64_t>(info.st_ctim.tv_sec),
        static_cast<std::uint64_t>(info.st_ctim.tv_nsec)})
    text += " " + std::to_string(number);
  return text;
}

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

/// Files that are mapped now, by address.
class MappedPlaces {
 public:
  static MappedPlaces& instance() {
    static auto* const places = new MappedPlaces;
    return *places;
  }

  void add(const char* begin, std::size_t bytes, std::string identity) {
    const std::lock_guard lock(mutex_);
    places_[begin] = {.bytes = bytes, .identity = std::move(identity)};
  }
  void remove(const char* begin) {
    const std::lock_guard lock(mutex_);
    places_.erase(begin);
  }
  std::string find(const char* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto place = file_around(data, bytes);
    if (place == places_.end() || place->second.identity.empty()) return {};
    return place->second.identity + " at " + std::to_string(data - place->first);
  }
  void give_back(const char* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);  // the file stays mapped meanwhile
    const auto place = file_around(data, bytes);
    if (place == places_.end()) return;
    const std::size_t page = page_bytes();
    const auto offset = static_cast<std::size_t>(data - place->first);
    const std::size_t begin = (offset + page - 1) / page * page;
    const std::size_t end = (offset + bytes) / page * page;
    if (begin < end) ::madvise(const_cast<char*>(place->first) + begin, end - begin, MADV_DONTNEED);
  }

 private:
  struct File {
    std::size_t bytes = 0;
    std::string identity;  ///< empty: it has none
  };
  using Files = std::map<const char*, File>;

  Files::const_iterator file_around(const char* data, std::size_t bytes) const {
    auto place = places_.upper_bound(data);
    if (place == places_.begin()) return places_.end();
    --place;
    const auto offset = static_cast<std::size_t>(data - place->first);
    const std::size_t size = place->second.bytes;
    return offset > size || bytes > size - offset ? places_.end() : Files::const_iterator(place);
  }

  std::mutex mutex_;
  Files places_;
};

/// The pages of so many bytes, and one more.
std::size_t mapped_bytes(std::size_t size) {
  const std::size_t page = page_bytes();
  return (size + page - 1) / page * page + page;
}

/// The file, and a page of zeros behind it. Vectors whose last lanes are masked out reach beyond the last element: where no page is
/// there, processors leave these lanes out in microcode, which takes some tens of cycles each time. @return MAP_FAILED: errno
/// says why.
void* map_with_page_behind(int file, std::size_t size) {
  const std::size_t all = mapped_bytes(size);
  void* begin = ::mmap(nullptr, all, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return begin;
  if (::mmap(begin, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(begin, all);
    errno = error;
    return MAP_FAILED;
  }
  // It is there from its first use on.
  static_cast<void>(*(static_cast<const volatile char*>(begin) + all - page_bytes()));
  return begin;
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path, std::string& reason) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    reason = std::strerror(errno);
    return nullptr;
  }
  struct stat info{};
  void* mapped = nullptr;
  std::size_t size = 0;
  std::string identity;
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    reason = "not a regular file";
  } else if (size = static_cast<std::size_t>(info.st_size); size != 0) {
    identity = identity_of(file, info);
    mapped = map_with_page_behind(file, size);
    if (mapped == MAP_FAILED) reason = std::strerror(errno);
  }
  ::close(file);
  if (!reason.empty()) return nullptr;
  return std::shared_ptr<const MappedFile>(
      new MappedFile(static_cast<const char*>(mapped), size, std::move(identity)));
}

MappedFile::MappedFile(const char* data, std::size_t size, std::string identity)
    : data_(data), size_(size) {
  if (data_ != nullptr) MappedPlaces::instance().add(data_, size_, std::move(identity));
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  MappedPlaces::instance().remove(data_);
  ::munmap(const_cast<char*>(data_), mapped_bytes(size_));
}

std::string base::place_in_file(const void* data, std::size_t bytes) {
  return MappedPlaces::instance().find(static_cast<const char*>(data), bytes);
}

void base::give_back_pages(const void* data, std::size_t bytes) {
  MappedPlaces::instance().give_back(static_cast<const char*>(data), bytes);
}

}  // namespace heddle
