#include "engine/cli/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "heddle/error.h"

namespace heddle::cli {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Code {
  DType dtype;
  std::string_view text;
};
constexpr Code kCodes[] = {{f32, "<f4"},     {f64, "<f8"}, {f16, "<f2"}, {i8, "|i1"},
                           {u8, "|u1"},      {i16, "<i2"}, {i32, "<i4"}, {i64, "<i8"},
                           {boolean, "|b1"}, {u16, "<u2"}, {u32, "<u4"}, {u64, "<u8"}};

[[noreturn]] void fail(const std::string& path, std::string expected, std::string got) {
  throw ParseError({.what = "read " + path,
                    .where = {},
                    .expected = std::move(expected),
                    .got = std::move(got)});
}

/// What follows `key` in the header's dictionary.
std::string_view entry(std::string_view header, std::string_view key, const std::string& path) {
  const std::size_t at = header.find(key);
  const std::size_t colon = at == std::string_view::npos ? at : header.find(':', at);
  if (colon == std::string_view::npos) fail(path, "a header with " + std::string(key), "none");
  const std::size_t first = header.find_first_not_of(' ', colon + 1);
  return first == std::string_view::npos ? std::string_view() : header.substr(first);
}

std::string code_of_header(std::string_view header, const std::string& path) {
  const std::string_view text = entry(header, "'descr'", path);
  return std::string(text.substr(1, text.find('\'', 1) - 1));
}

/// Characters of each string of a file of strings; nothing of others, and of strings of none or of too many.
std::optional<std::size_t> string_length(const std::string& code) {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  if (!code.starts_with("<U")) return {};
  std::size_t length = 0;
  const char* end = code.data() + code.size();
  const auto [rest, error] = std::from_chars(code.data() + 2, end, length);
  const bool fits = error == std::errc() && rest == end && length != 0 && length <= kLongest;
  return fits ? std::optional(length) : std::nullopt;
}

DType dtype_of_header(const std::string& code, const std::string& path) {
  for (const Code& known : kCodes) {
    if (code == known.text ||
        (code.size() == 3 && code[0] == '=' && code.substr(1) == known.text.substr(1)))
      return known.dtype;
  }
  throw UnsupportedError(
      {.what = "read " + path,
       .where = {},
       .expected = "little-endian floats, integers up to 64 bits, bool or strings",
       .got = code});
}

Sizes sizes_of_header(std::string_view header, const std::string& path) {
  std::string_view text = entry(header, "'shape'", path);
  const std::size_t close = text.find(')');
  if (text.empty() || text[0] != '(' || close == std::string_view::npos)
    fail(path, "a shape in the header", std::string(text.substr(0, 20)));
  Sizes sizes;
  std::int64_t number = -1;
  for (const char c : text.substr(1, close)) {
    if (c == '-') fail(path, "sizes of at least 0", std::string(text.substr(0, close + 1)));
    if (c >= '0' && c <= '9') {
      if (__builtin_mul_overflow(number < 0 ? 0 : number, std::int64_t{10}, &number) ||
          __builtin_add_overflow(number, c - '0', &number))
        fail(path, "sizes of 64 bits", std::string(text.substr(0, close)));
    } else if (number >= 0) {
      sizes.push_back(number);
      number = -1;
    }
  }
  return sizes;
}

/// Elements in column-major order as row-major ones.
Tensor transposed(const Tensor& columns, const Sizes& sizes) {
  Tensor rows = Tensor::empty(columns.dtype(), sizes);
  const std::size_t width = size_of(columns.dtype());
  Sizes index(sizes.size(), 0);
  for (std::int64_t position = 0; position < rows.count(); ++position) {
    std::int64_t source = 0;
    for (std::size_t d = sizes.size(); d-- > 0;) source = source * sizes[d] + index[d];
    std::memcpy(static_cast<char*>(rows.data()) + static_cast<std::size_t>(position) * width,
                static_cast<const char*>(columns.data()) + static_cast<std::size_t>(source) * width,
                width);
    for (std::size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
  return rows;
}

std::uint32_t little_endian(const char* bytes, int count) {
  std::uint32_t value = 0;
  for (int k = count - 1; k >= 0; --k) value = value << 8 | static_cast<unsigned char>(bytes[k]);
  return value;
}

constexpr char32_t kUnknown = 0xfffd;
constexpr char32_t kLast = 0x10ffff;
constexpr std::size_t kCharacterBytes = 4;

/// The characters of UTF-8; what is none is one of kUnknown a byte.
std::u32string characters_of(const std::string& utf8) {
  std::u32string characters;
  for (std::size_t at = 0; at < utf8.size();) {
    const auto first = static_cast<unsigned char>(utf8[at]);
    const std::size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
    char32_t character = more == 0 ? first : first & (0x3f >> more);
    bool is_one = (first < 0x80 || more != 0) && first < 0xf8 && at + more < utf8.size();
    for (std::size_t k = 1; k <= more && is_one; ++k) {
      const auto next = static_cast<unsigned char>(utf8[at + k]);
      is_one = (next & 0xc0) == 0x80;
      character = character << 6 | (next & 0x3f);
    }
    characters += is_one && character <= kLast ? character : kUnknown;
    at += is_one ? more + 1 : 1;
  }
  return characters;
}

std::string utf8_of(std::u32string_view characters) {
  std::string utf8;
  for (char32_t character : characters) {
    if (character > kLast) character = kUnknown;
    const int more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    constexpr unsigned char kFirst[] = {0, 0xc0, 0xe0, 0xf0};
    utf8 += static_cast<char>(kFirst[more] | character >> (6 * more));
    for (int k = more - 1; k >= 0; --k)
      utf8 += static_cast<char>(0x80 | ((character >> (6 * k)) & 0x3f));
  }
  return utf8;
}

/// Codes of strings of `length` characters each, which zeros fill up.
Tensor codes_of(const char* data, const Sizes& sizes, std::size_t length,
                onnx::StringCodes& codes) {
  Tensor tensor = Tensor::empty(i64, sizes);
  std::u32string characters(length, 0);
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    const std::size_t bytes = length * kCharacterBytes;
    std::memcpy(characters.data(), data + static_cast<std::size_t>(k) * bytes, bytes);
    const std::size_t last = characters.find_last_not_of(U'\0');
    const std::u32string_view text =
        std::u32string_view(characters).substr(0, last == std::u32string::npos ? 0 : last + 1);
    tensor.data_as<std::int64_t>()[k] = codes.code_of(utf8_of(text));
  }
  return tensor;
}

}  // namespace

Tensor read_npy(const std::string& path, onnx::StringCodes* codes) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail(path, "a file", "a folder");
  if (!file) fail(path, "a file that can be read", "none");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 12 || !bytes.starts_with(kMagic)) fail(path, "a .npy file", "other bytes");
  const int width = bytes[6] == 1 ? 2 : 4;
  const std::size_t start = 8 + static_cast<std::size_t>(width);
  const std::size_t length = little_endian(bytes.data() + 8, width);
  if (length > bytes.size() - start) fail(path, "a whole header", "a truncated file");
  const std::string_view header = std::string_view(bytes).substr(start, length);
  const std::string code = code_of_header(header, path);
  const auto string = codes != nullptr ? string_length(code) : std::nullopt;
  const DType dtype = string ? i64 : dtype_of_header(code, path);
  const std::size_t each = string ? *string * kCharacterBytes : size_of(dtype);
  const Sizes sizes = sizes_of_header(header, path);
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(count, size, &count)) fail(path, "sizes of 64 bits", "larger ones");
  }
  const std::size_t left = bytes.size() - start - length;
  if (each != 0 && static_cast<std::size_t>(count) > left / each)
    fail(path, fmt::format("{} elements", count), fmt::format("{} bytes", left));
  const char* data = bytes.data() + start + length;
  Tensor tensor = string ? codes_of(data, sizes, *string, *codes) : Tensor::empty(dtype, sizes);
  if (count != 0 && !string)
    std::memcpy(tensor.data(), data, static_cast<std::size_t>(count) * each);
  return entry(header, "'fortran_order'", path).starts_with("True") ? transposed(tensor, sizes)
                                                                    : tensor;
}

void write_npy(const std::string& path, const Tensor& given, const onnx::StringCodes* codes) {
  Tensor tensor = given.is_row_major() ? given : given.clone();
  if (tensor.dtype() == bf16 || is_float8(tensor.dtype())) {
    Tensor wide = Tensor::empty(f32, Sizes(tensor.sizes().begin(), tensor.sizes().end()));
    std::ranges::transform(tensor.to_doubles(), wide.data_as<float>(),
                           [](double number) { return static_cast<float>(number); });
    tensor = wide;
  }
  std::string code;
  for (const Code& known : kCodes) {
    if (known.dtype == tensor.dtype()) code = known.text;
  }
  std::string data(static_cast<const char*>(tensor.data()),
                   static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype()));
  if (codes != nullptr) {
    std::vector<std::u32string> strings;
    std::size_t longest = 1;
    for (const std::string& string : codes->decode(tensor)) {
      strings.push_back(characters_of(string));
      longest = std::max(longest, strings.back().size());
    }
    code = fmt::format("<U{}", longest);
    data.clear();
    for (std::u32string& string : strings) {
      string.resize(longest);
      data.append(reinterpret_cast<const char*>(string.data()), longest * kCharacterBytes);
    }
  }
  std::string shape;
  for (const std::int64_t size : tensor.sizes()) shape += fmt::format("{},", size);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", code, shape);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << kMagic << '\x01' << '\0' << static_cast<char>(header.size() & 0xff)
       << static_cast<char>(header.size() >> 8) << header;
  file.write(data.data(), static_cast<std::streamsize>(data.size()));
  if (!file.flush())
    throw ArgumentError(
        {.what = "write " + path, .where = {}, .expected = "a writable file", .got = {}});
}

}  // namespace heddle::cli
