#include "worker/planner/tensors_file.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/layout.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/planner/balanced_fragments.h"

namespace atl::worker {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
// As in NumPy.
constexpr int kDimensionsMax = 64;
constexpr size_t kNameBytesMax = 256;
// Nothing in a file needs to be nested deeper.
constexpr int kDepthMax = 8;
// Longest piece of the file's text in a message.
constexpr size_t kQuoteMax = 80;

std::string Quote(absl::string_view text) {
  return absl::StrCat("\"", text.substr(0, kQuoteMax),
                      text.size() > kQuoteMax ? "..." : "", "\"");
}

// `json` as text, cut to a length for messages.
std::string ToText(const Json& json) {
  const std::string text =
      json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() <= kQuoteMax
             ? text
             : absl::StrCat(text.substr(0, kQuoteMax), "...");
}

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

// True if lists and objects of the JSON `text` are nested deeper than
// kDepthMax. A value of any depth could overflow the stack when it is printed.
// The JSON library's own callback with the depth takes quadratic time.
bool IsDeep(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDepthMax) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// Refuses the first key of `object` that is not in `known`.
absl::Status CheckKeys(const Json& object,
                       std::initializer_list<absl::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return Wrong(absl::StrCat("unknown key ", Quote(key), "; known keys are ",
                              absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

// A whole number in [least, most].
std::optional<int64_t> GetInteger(const Json& json, int64_t least,
                                  int64_t most) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(most)) {
    return std::nullopt;
  }
  const auto value = json.get<int64_t>();
  if (value < least || value > most) return std::nullopt;
  return value;
}

absl::Status ReadShape(const Json& json, v1::TensorSpec& tensor) {
  if (!json.is_array()) {
    return Wrong("\"shape\" must be a list of whole numbers: [3, 4]");
  }
  if (json.empty()) {
    return Wrong("\"shape\" is empty: write [1] for a scalar");
  }
  if (json.size() > kDimensionsMax) {
    return Wrong(absl::StrCat("\"shape\" has ", json.size(),
                              " dimensions; at most ", kDimensionsMax,
                              " are allowed"));
  }
  int64_t element_count = 1;
  for (const Json& item : json) {
    const std::optional<int64_t> dimension =
        GetInteger(item, 1, RunLayout::kMaxElements);
    if (!dimension.has_value()) {
      return Wrong(absl::StrCat("a dimension is ", ToText(item),
                                "; it must be a whole number from 1 to 2^40: "
                                "leave out tensors without elements"));
    }
    if (*dimension > RunLayout::kMaxElements / element_count) {
      return Wrong("has more than 2^40 elements: split it");
    }
    element_count *= *dimension;
    tensor.add_shape(*dimension);
  }
  return absl::OkStatus();
}

absl::Status ReadInit(const Json& json, v1::TensorInit& init) {
  if (!json.is_object()) {
    return Wrong("\"init\" must be like {\"kind\": \"normal\", \"value\": "
                 "0.02}");
  }
  RETURN_IF_ERROR(CheckKeys(json, {"kind", "value"}));
  const Json kind = json.value("kind", Json());
  if (kind == "normal") {
    init.set_kind(v1::INIT_KIND_NORMAL);
  } else if (kind != "constant") {
    return Wrong(absl::StrCat("init \"kind\" is ", ToText(kind),
                              "; it must be \"constant\" or \"normal\""));
  }
  const auto value = json.find("value");
  if (value == json.end()) {
    if (init.kind() == v1::INIT_KIND_CONSTANT) return absl::OkStatus();
    return Wrong("init \"value\" is missing: give the standard deviation");
  }
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return Wrong(absl::StrCat("init \"value\" is ", ToText(*value),
                              "; it must be a finite number"));
  }
  if (init.kind() == v1::INIT_KIND_NORMAL && value->get<double>() < 0) {
    return Wrong(absl::StrCat("init \"value\" is ", ToText(*value),
                              "; a standard deviation is at least 0"));
  }
  init.set_value(value->get<double>());
  return absl::OkStatus();
}

absl::Status ReadClass(const Json& json, v1::TensorSpec& tensor) {
  if (json.is_null()) {
    tensor.set_tensor_class(tensor.shape_size() == 1 ? v1::TENSOR_CLASS_VECTOR
                                                     : v1::TENSOR_CLASS_MATRIX);
  } else if (json == "matrix") {
    tensor.set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  } else if (json == "embedding") {
    tensor.set_tensor_class(v1::TENSOR_CLASS_EMBEDDING);
  } else if (json == "vector") {
    tensor.set_tensor_class(v1::TENSOR_CLASS_VECTOR);
  } else if (json == "buffer") {
    tensor.set_tensor_class(v1::TENSOR_CLASS_BUFFER);
  } else {
    return Wrong(absl::StrCat("\"class\" is ", ToText(json),
                              "; it must be \"matrix\", \"embedding\", "
                              "\"vector\" or \"buffer\""));
  }
  return absl::OkStatus();
}

// The fragment stays -1 if `json` names none.
absl::StatusOr<v1::TensorSpec> ReadTensor(const Json& json) {
  if (!json.is_object()) {
    return Wrong("must be an object with \"name\" and \"shape\"");
  }
  RETURN_IF_ERROR(
      CheckKeys(json, {"name", "shape", "fragment", "init", "class"}));
  v1::TensorSpec tensor;
  tensor.set_dtype(v1::DATA_TYPE_F32);
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string() ||
      name->get_ref<const std::string&>().empty()) {
    return Wrong("needs a \"name\", which must not be empty");
  }
  tensor.set_name(name->get<std::string>());
  if (tensor.name().size() > kNameBytesMax) {
    return Wrong(absl::StrCat("its name is longer than ", kNameBytesMax,
                              " bytes: shorten it"));
  }
  const auto shape = json.find("shape");
  if (shape == json.end()) return Wrong("needs a \"shape\": [3, 4]");
  RETURN_IF_ERROR(ReadShape(*shape, tensor));
  tensor.set_fragment(-1);
  if (const auto fragment = json.find("fragment"); fragment != json.end()) {
    const std::optional<int64_t> number =
        GetInteger(*fragment, 0, RunLayout::kMaxTensors - 1);
    if (!number.has_value()) {
      return Wrong(absl::StrCat("\"fragment\" is ", ToText(*fragment),
                                "; fragments are numbered from 0, and there "
                                "are at most as many as tensors"));
    }
    tensor.set_fragment(static_cast<int32_t>(*number));
  }
  tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  if (const auto init = json.find("init"); init != json.end()) {
    RETURN_IF_ERROR(ReadInit(*init, *tensor.mutable_init()));
  }
  RETURN_IF_ERROR(ReadClass(json.value("class", Json()), tensor));
  return tensor;
}

absl::StatusOr<v1::Layout> ReadTensors(const Json& json) {
  if (!json.is_object()) {
    return Wrong("is not an object with \"version\" and \"tensors\"");
  }
  const auto version = json.find("version");
  if (version == json.end() || *version != kVersion) {
    return Wrong(absl::StrCat(
        "\"version\" is ",
        version == json.end() ? "missing" : ToText(*version),
        "; this program reads version ", kVersion,
        ": write that version, or upgrade the program"));
  }
  RETURN_IF_ERROR(CheckKeys(json, {"version", "tensors"}));
  const auto tensors = json.find("tensors");
  if (tensors == json.end() || !tensors->is_array() || tensors->empty()) {
    return Wrong("\"tensors\" must be a list of at least one tensor");
  }
  if (tensors->size() > RunLayout::kMaxTensors) {
    return Wrong(absl::StrCat("has ", tensors->size(),
                              " tensors; a run takes at most ",
                              RunLayout::kMaxTensors));
  }
  v1::Layout layout;
  absl::flat_hash_map<std::string, int> indices;
  for (const Json& item : *tensors) {
    const int index = layout.tensors_size();
    absl::StatusOr<v1::TensorSpec> tensor = ReadTensor(item);
    if (!tensor.ok()) {
      const Json name =
          item.is_object() ? item.value("name", Json()) : Json();
      return Wrong(absl::StrCat(
          "tensor ", index,
          name.is_string() ? absl::StrCat(" (", ToText(name), ")") : "", ": ",
          tensor.status().message()));
    }
    const auto [other, is_new] = indices.emplace(tensor->name(), index);
    if (!is_new) {
      return Wrong(absl::StrCat("tensors ", other->second, " and ", index,
                                " are both called ", Quote(tensor->name()),
                                ": a name must be unique; list shared "
                                "parameters once"));
    }
    *layout.add_tensors() = *std::move(tensor);
  }
  return layout;
}

absl::Status CheckNamedFragments(const v1::Layout& layout) {
  const int32_t count = layout.fragment_count();
  std::vector<bool> has_tensor(count, false);
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    if (tensor.fragment() < 0) {
      return Wrong(absl::StrCat("tensor ", Quote(tensor.name()),
                                " names no \"fragment\", but others do: name "
                                "it for all tensors, or for none"));
    }
    if (tensor.fragment() >= count) {
      return Wrong(absl::StrCat(
          "tensor ", Quote(tensor.name()), " is in fragment ",
          tensor.fragment(), ", but there are ", count,
          " fragments, numbered from 0: change it, or layout.fragment_count "
          "in the run file"));
    }
    has_tensor[tensor.fragment()] = true;
  }
  for (int32_t f = 0; f < count; ++f) {
    if (has_tensor[f]) continue;
    return Wrong(absl::StrCat("no tensor is in fragment ", f, " of ", count,
                              ": number the fragments from 0 without gaps"));
  }
  return absl::OkStatus();
}

absl::Status AssignFragments(const TensorsFileOptions& options,
                             v1::Layout& layout) {
  int32_t named_count = 0;
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    named_count = std::max(named_count, tensor.fragment() + 1);
  }
  int32_t count = options.fragment_count;
  if (count == 0) {
    count = named_count > 0 ? named_count
                            : std::min(options.fragment_count_default,
                                       layout.tensors_size());
  }
  if (count < 1 || count > layout.tensors_size()) {
    return Wrong(absl::StrCat(
        "has ", layout.tensors_size(), " tensors, which are too few for ",
        count, " fragments: each fragment needs a tensor; use fewer"));
  }
  layout.set_fragment_count(count);
  if (named_count > 0) return CheckNamedFragments(layout);
  std::vector<int64_t> sizes;
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    sizes.push_back(1);
    for (const int64_t dimension : tensor.shape()) sizes.back() *= dimension;
  }
  const std::vector<int32_t> fragments = BalancedFragments(sizes, count);
  for (int i = 0; i < layout.tensors_size(); ++i) {
    layout.mutable_tensors(i)->set_fragment(fragments[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Layout> Parse(absl::string_view text,
                                 const TensorsFileOptions& options) {
  if (static_cast<int64_t>(text.size()) > kTensorsFileBytesMax) {
    return Wrong(absl::StrCat("is longer than ", kTensorsFileBytesMax,
                              " bytes: it holds more than names and shapes"));
  }
  if (IsDeep(text)) {
    return Wrong("has lists or objects nested too deeply: it is no list of "
                 "tensors");
  }
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return Wrong(absl::StrCat("is not JSON; `python3 -m json.tool ",
                              options.name, "` shows where"));
  }
  ASSIGN_OR_RETURN(v1::Layout layout, ReadTensors(json));
  RETURN_IF_ERROR(AssignFragments(options, layout));
  RETURN_IF_ERROR(RunLayout::Create(layout).status());
  return layout;
}

}  // namespace

absl::StatusOr<v1::Layout> ParseTensorsFile(absl::string_view text,
                                            const TensorsFileOptions& options) {
  absl::StatusOr<v1::Layout> layout = Parse(text, options);
  if (layout.ok()) return layout;
  return Wrong(absl::StrCat(options.name, ": ", layout.status().message()));
}

}  // namespace atl::worker
