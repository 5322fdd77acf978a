// Small XML documents, for answers of S3 and STS. Pure. Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl {

// An element. Attributes are not kept.
struct XmlElement {
  std::string name;  // Without a namespace's prefix.
  std::string text;  // This element's, without its children's.
  std::vector<XmlElement> children;

  // The first child of this name; null if there is none.
  const XmlElement* Find(absl::string_view child) const;
  // The text of the first child of this name; empty if there is none.
  std::string GetText(absl::string_view child) const;
};

// Returns the root.
//
// DATA_LOSS: not well-formed, has a document type (so no entity of its own), or
// more than 32 levels or 100,000 elements.
absl::StatusOr<XmlElement> ParseXml(absl::string_view text);

}  // namespace atl
