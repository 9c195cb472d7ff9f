// Graphs as files: text in x.hir, the bytes of large constants and of parameters next to it in x.hir.bin.
//
// The side file: the magic, then for each entry its name, dtype, rank, sizes, checksum and bytes; numbers
// are 64-bit little-endian. Nothing follows the last entry.
#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "heddle/error.h"
#include "ir/text.h"

namespace heddle::ir {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "heddle constants 1\n";
constexpr std::uint64_t kMaxRank = 64;

[[noreturn]] void fail(const std::string& path, std::string what, std::string expected = {}) {
  throw ParseError(
      {.what = std::move(what), .where = path, .expected = std::move(expected), .got = {}});
}

void write_number(std::string& out, std::uint64_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void write_entry(std::string& out, const std::string& name, const Literal& literal) {
  write_number(out, name.size());
  out += name;
  write_number(out, static_cast<std::uint64_t>(literal.dtype()));
  write_number(out, literal.sizes().size());
  for (const std::int64_t size : literal.sizes())
    write_number(out, static_cast<std::uint64_t>(size));
  const base::Hash128 checksum = literal.checksum();
  write_number(out, checksum.low);
  write_number(out, checksum.high);
  const Literal plain = literal.contiguous();
  out.append(static_cast<const char*>(plain.data()), plain.bytes());
}

/// Takes numbers and bytes from a side file; never reads past its end.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  bool at_end() const { return bytes_.empty(); }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) fail(path_, "the file ends too early");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::pair<std::string, LiteralPtr> entry() {
    std::string name(take(number()));
    const std::uint64_t dtype = number();
    if (dtype >= std::size(kAllDTypes)) fail(path_, "dtype of constant @" + name, "a known dtype");
    Sizes sizes(rank(name));
    for (std::int64_t& size : sizes) size = static_cast<std::int64_t>(number());
    const base::Hash128 checksum{number(), number()};
    const std::string_view data = take(byte_count(name, kAllDTypes[dtype], sizes));
    auto literal = std::make_shared<Literal>(kAllDTypes[dtype], std::move(sizes));
    if (!data.empty()) std::memcpy(literal->data(), data.data(), data.size());
    if (literal->checksum() != checksum)
      fail(path_, "checksum of constant @" + name, checksum.hex());
    return {std::move(name), std::move(literal)};
  }

 private:
  std::uint64_t rank(const std::string& name) {
    const std::uint64_t rank = number();
    if (rank > kMaxRank) fail(path_, "rank of constant @" + name, "at most 64");
    return rank;
  }

  /// Sizes are not trusted: they may be negative, overflow, or ask for more than the file holds.
  std::uint64_t byte_count(const std::string& name, DType dtype, const Sizes& sizes) {
    std::uint64_t count = size_of(dtype);
    if (std::ranges::find(sizes, 0) != sizes.end()) count = 0;
    for (const std::int64_t size : sizes)
      if (size < 0 || __builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count))
        fail(path_, "sizes of constant @" + name, "sizes that fit 64 bits");
    return count;
  }

  std::string_view bytes_;
  const std::string& path_;
};

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) fail(path, "cannot read the file");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Readers see the old file or the new one, never a half.
void write_whole(const std::string& path, const std::string& bytes) {
  const std::string unfinished = path + ".new";
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) fail(path, "cannot write the file");
  }
  std::error_code error;
  std::filesystem::rename(unfinished, path, error);
  if (error) fail(path, "cannot write the file: " + error.message());
}

LiteralTable read_literals(const std::string& path) {
  const std::string bytes = read_whole(path);
  Reader reader(bytes, path);
  if (!bytes.starts_with(kMagic)) fail(path, "no side file of constants");
  reader.take(kMagic.size());
  LiteralTable table;
  while (!reader.at_end()) table.insert(reader.entry());
  return table;
}

}  // namespace

void save(const Graph& graph, const std::string& path) {
  const LiteralTable table = named_literals(graph);
  const std::string side_path = path + ".bin";
  if (table.empty()) {
    std::error_code ignored;
    std::filesystem::remove(side_path, ignored);
  } else {
    std::string bytes(kMagic);
    for (const auto& [name, literal] : table) write_entry(bytes, name, *literal);
    write_whole(side_path, bytes);
  }
  write_whole(path, print(graph));
}

Graph load(const std::string& path) {
  const std::string text = read_whole(path);
  LiteralTable table;
  if (std::filesystem::exists(path + ".bin")) table = read_literals(path + ".bin");
  return parse(text, &table, std::filesystem::path(path).filename().string());
}

}  // namespace heddle::ir
