#include "tests/support/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace heddle::test {

using Document = nlohmann::ordered_json;

struct Json::Convert {
  static Json from(const Document& document) {
    Json json;
    switch (document.type()) {
      case Document::value_t::boolean:
        return document.get<bool>();
      case Document::value_t::number_integer:
      case Document::value_t::number_unsigned:
        return document.get<std::int64_t>();
      case Document::value_t::number_float:
        return document.get<double>();
      case Document::value_t::string:
        return document.get<std::string>();
      case Document::value_t::array:
        json.kind_ = Kind::Array;
        for (const Document& item : document) json.items_.push_back(from(item));
        return json;
      case Document::value_t::object:
        json.kind_ = Kind::Object;
        for (const auto& [key, item] : document.items()) {
          json.keys_.push_back(key);
          json.items_.push_back(from(item));
        }
        return json;
      default:
        return json;
    }
  }

  static Document to(const Json& json) {
    Document document;
    switch (json.kind_) {
      case Kind::Null:
        break;
      case Kind::Bool:
        return json.whole_ != 0;
      case Kind::Whole:
        return json.whole_;
      case Kind::Number:
        return json.number_;
      case Kind::Text:
        return json.text_;
      case Kind::Array:
        document = Document::array();
        for (const Json& item : json.items_) document.push_back(to(item));
        break;
      case Kind::Object:
        document = Document::object();
        for (std::size_t k = 0; k < json.items_.size(); ++k)
          document[json.keys_[k]] = to(json.items_[k]);
        break;
    }
    return document;
  }
};

Json Json::parse(std::string_view text) { return Convert::from(Document::parse(text)); }

Json Json::array(std::initializer_list<Json> items) {
  Json json;
  json.kind_ = Kind::Array;
  json.items_ = items;
  return json;
}

std::vector<Json::Entry> Json::items() const {
  std::vector<Entry> entries;
  for (std::size_t k = 0; k < keys_.size(); ++k) entries.emplace_back(keys_[k], items_[k]);
  return entries;
}

const Json* Json::find(std::string_view key) const {
  const auto found = std::ranges::find(keys_, key);
  return found == keys_.end() ? nullptr : &items_[static_cast<std::size_t>(found - keys_.begin())];
}

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) throw std::out_of_range("no \"" + std::string(key) + "\" in " + dump());
  return *found;
}

Json Json::value(std::string_view key, Json otherwise) const {
  const Json* found = find(key);
  return found == nullptr ? std::move(otherwise) : *found;
}

bool Json::equals(const Json& other) const {
  if (is_number() && other.is_number())
    return kind_ == Kind::Whole && other.kind_ == Kind::Whole ? whole_ == other.whole_
                                                              : number() == other.number();
  if (kind_ != other.kind_ || whole_ != other.whole_ || text_ != other.text_) return false;
  if (kind_ != Kind::Object) return items_ == other.items_;
  return size() == other.size() && std::ranges::all_of(keys_, [&](const std::string& key) {
           const Json* found = other.find(key);
           return found != nullptr && at(key) == *found;
         });
}

const std::string& Json::text() const {
  if (!is_string()) throw std::runtime_error("a string was wanted, not " + dump());
  return text_;
}

std::int64_t Json::whole() const {
  if (kind_ != Kind::Bool && kind_ != Kind::Whole)
    throw std::runtime_error("a whole number was wanted, not " + dump());
  return whole_;
}

double Json::number() const {
  if (!is_number()) throw std::runtime_error("a number was wanted, not " + dump());
  return kind_ == Kind::Whole ? static_cast<double>(whole_) : number_;
}

std::string Json::dump(int indent) const { return Convert::to(*this).dump(indent); }

}  // namespace heddle::test
