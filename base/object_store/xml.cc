#include "base/object_store/xml.h"

#include <expat.h>

#include <climits>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace atl {
namespace {

constexpr size_t kDepthMax = 32;
constexpr int kElementCountMax = 100'000;

// The elements that are open while a document is read.
struct Reader {
  static Reader& From(void* self) { return *static_cast<Reader*>(self); }

  void Stop(absl::string_view why) {
    fault = std::string(why);
    XML_StopParser(parser, XML_FALSE);
  }

  static void Begin(void* self, const char* name, const char**) {
    Reader& reader = From(self);
    if (reader.open.size() > kDepthMax ||
        ++reader.element_count > kElementCountMax) {
      return reader.Stop("too many elements");
    }
    const absl::string_view whole = name;
    reader.open.push_back(
        {.name = std::string(whole.substr(whole.rfind(':') + 1))});
  }

  static void End(void* self, const char*) {
    Reader& reader = From(self);
    XmlElement done = std::move(reader.open.back());
    reader.open.pop_back();
    reader.open.back().children.push_back(std::move(done));
  }

  static void Text(void* self, const char* text, int count) {
    From(self).open.back().text.append(text, count);
  }

  static void DocumentType(void* self, const char*, const char*, const char*,
                           int) {
    From(self).Stop("a document type is not read");
  }

  XML_Parser parser;
  std::vector<XmlElement> open = {XmlElement()};  // First: holds the root.
  int element_count = 0;
  std::string fault;
};

}  // namespace

const XmlElement* XmlElement::Find(absl::string_view child) const {
  for (const XmlElement& element : children) {
    if (element.name == child) return &element;
  }
  return nullptr;
}

std::string XmlElement::GetText(absl::string_view child) const {
  const XmlElement* const found = Find(child);
  return found == nullptr ? "" : found->text;
}

absl::StatusOr<XmlElement> ParseXml(absl::string_view text) {
  if (text.size() > INT_MAX) return absl::DataLossError("XML: too long");
  const std::unique_ptr<std::remove_pointer_t<XML_Parser>, void (*)(XML_Parser)>
      parser(XML_ParserCreate(nullptr), &XML_ParserFree);
  if (parser == nullptr) return absl::ResourceExhaustedError("out of memory");
  Reader reader{.parser = parser.get()};
  XML_SetUserData(parser.get(), &reader);
  XML_SetElementHandler(parser.get(), &Reader::Begin, &Reader::End);
  XML_SetCharacterDataHandler(parser.get(), &Reader::Text);
  XML_SetStartDoctypeDeclHandler(parser.get(), &Reader::DocumentType);
  if (XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()),
                XML_TRUE) != XML_STATUS_OK) {
    return absl::DataLossError(absl::StrCat(
        "XML, line ", XML_GetCurrentLineNumber(parser.get()), ": ",
        reader.fault.empty() ? XML_ErrorString(XML_GetErrorCode(parser.get()))
                             : reader.fault));
  }
  return std::move(reader.open.front().children.front());
}

}  // namespace atl
