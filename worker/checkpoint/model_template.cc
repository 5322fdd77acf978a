#include "worker/checkpoint/model_template.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/codec/bits.h"
#include "base/codec/sha256.h"
#include "base/io/open_directory.h"
#include "base/status/status_macros.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/export_directory.h"

namespace atl::worker {
namespace {

constexpr char kAdapterWeightsName[] = "adapter_model.safetensors";
constexpr int64_t kPieceBytes = 4 << 20;
constexpr int kFilesMax = 1000;
constexpr size_t kNamesShown = 5;

absl::Status Wrong(absl::string_view message) {
  return absl::InvalidArgumentError(message);
}

// Files with other parameters, or objects that only Python reads.
bool IsOtherWeights(absl::string_view name) {
  for (const absl::string_view end :
       {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5",
        ".msgpack", ".onnx", ".pkl"}) {
    if (absl::EndsWith(name, end)) return true;
  }
  return false;
}

// The code point at the front of valid UTF-8, which is removed.
uint32_t TakeCodePoint(absl::string_view& text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const size_t length = first < 0x80   ? 1
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                                       : 4;
  uint32_t point = length == 1 ? first : first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length && i < text.size(); ++i) {
    point = point << 6 | (static_cast<uint8_t>(text[i]) & 0x3fu);
  }
  text.remove_prefix(std::min(length, text.size()));
  return point;
}

// Names that PEFT's files may give the run's tensor `name`, each with the
// adapter's name that it lacks: the last word, or the one before.
std::vector<std::pair<std::string, std::string>> NamesInAdapter(
    absl::string_view name) {
  std::vector<std::string> words = absl::StrSplit(name, '.');
  const auto saved = absl::c_find(words, "modules_to_save");
  if (saved != words.end()) words.erase(saved);
  std::vector<std::pair<std::string, std::string>> names;
  if (words.size() < 3) return names;
  const std::string last = words.back();
  words.pop_back();
  names.emplace_back(absl::StrJoin(words, "."), last);
  const std::string adapter = words.back();
  words.pop_back();
  // A magnitude vector of DoRA also loses its "weight".
  if (last == "weight") names.emplace_back(absl::StrJoin(words, "."), adapter);
  words.push_back(last);
  names.emplace_back(absl::StrJoin(words, "."), adapter);
  return names;
}

absl::string_view LastWord(absl::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

std::string SomeOf(absl::Span<const std::string> names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + shown, ", "),
      names.size() == shown
          ? ""
          : absl::StrCat(" and ", names.size() - shown, " more"));
}

// An element of this dtype can hold a run's value.
bool IsFloat(absl::string_view dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

// The nearest value, ties to the even one; nullopt: it would be infinite, or is
// no number.
std::optional<uint16_t> NarrowBf16(float value) {
  if (codec::MagnitudeBits(value) >= 0x7f7f8000) return std::nullopt;
  return codec::NearestBf16(value);
}

std::optional<uint16_t> NarrowF16(float value) {
  const uint32_t magnitude = codec::MagnitudeBits(value);
  const uint32_t sign = codec::ToBits(value) >> 16 & 0x8000;
  if (magnitude >= 0x477ff000) return std::nullopt;  // 65520 and more.
  if (magnitude < 0x38800000) {  // Less than 2^-14: a multiple of 2^-24.
    return static_cast<uint16_t>(
        sign | static_cast<uint32_t>(
                   std::nearbyint(std::fabs(value) * 0x1p24f)));
  }
  const uint32_t shifted = magnitude - (112u << 23);  // Exponent's bias.
  return static_cast<uint16_t>(
      sign | (shifted + 0xfff + (shifted >> 13 & 1)) >> 13);
}

// Appends `values` as `dtype`. False: it cannot hold one of them.
bool AppendAs(absl::string_view dtype, absl::Span<const float> values,
              std::string& out) {
  const auto add = [&](auto number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  for (const float value : values) {
    if (dtype == "F32") {
      add(value);
    } else if (dtype == "F64") {
      add(static_cast<double>(value));
    } else {
      const std::optional<uint16_t> bits =
          dtype == "BF16" ? NarrowBf16(value) : NarrowF16(value);
      if (!bits.has_value()) return false;
      add(*bits);
    }
  }
  return true;
}

}  // namespace

// Tensors of one dtype and shape are equal if these are.
struct ModelTemplate::Content {
  codec::Sha256Digest digest;
  bool is_constant = true;  // All elements have the same bytes.
};

std::string RunTensorName(absl::string_view name) {
  std::string text = absl::StrReplaceAll(
      name, {{"_orig_mod.", ""}, {"_checkpoint_wrapped_module.", ""}});
  absl::string_view rest = absl::StripPrefix(text, "module.");
  std::string made;
  while (!rest.empty()) {
    const uint32_t point = TakeCodePoint(rest);
    if (point < 0x80 && (absl::ascii_isalnum(point) || point == '.' ||
                         point == '_' || point == '-')) {
      made += static_cast<char>(point);
    } else {
      absl::StrAppendFormat(&made, "_u%x_", point);
    }
  }
  return made;
}

absl::StatusOr<std::unique_ptr<ModelTemplate>> ModelTemplate::Open(
    FileSystem& file_system, const std::string& directory,
    const v1::Layout& layout, std::stop_token stop) {
  ASSIGN_OR_RETURN(RunLayout run_layout, RunLayout::Create(layout));
  std::unique_ptr<ModelTemplate> made(
      new ModelTemplate(directory, std::move(run_layout)));
  RETURN_IF_ERROR(made->FindFiles(file_system));
  RETURN_IF_ERROR(made->MatchTensors(layout));
  RETURN_IF_ERROR(made->FindTied(stop));
  return made;
}

absl::Status ModelTemplate::FindFiles(FileSystem& file_system) {
  const auto path_of = [&](absl::string_view name) {
    return absl::StrCat(directory_, "/", name);
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<OpenDirectory> opened,
                   OpenDirectory::Open(file_system, directory_));
  ASSIGN_OR_RETURN(const std::vector<std::string> found, opened->List());
  if (found.size() > kFilesMax) {
    return Wrong(absl::StrCat("the template ", directory_, " has ",
                              found.size(),
                              " files: give a directory with one model"));
  }
  is_adapter_ = absl::c_linear_search(found, kAdapterWeightsName);
  if (!is_adapter_) {
    ASSIGN_OR_RETURN(names_, ListWeightFiles(file_system, directory_));
  } else if (absl::c_linear_search(found, kWeightsName) ||
             absl::c_linear_search(found, kWeightIndexName)) {
    return Wrong(absl::StrCat("the template ", directory_,
                              " has a model and an adapter: give a directory "
                              "with one of them"));
  } else {
    names_ = {kAdapterWeightsName};
  }
  for (const std::string& name : names_) {
    const std::optional<struct stat> status = opened->Look(name);
    if (status.has_value() && !S_ISREG(status->st_mode)) {
      return Wrong(absl::StrCat(path_of(name),
                                " is no regular file: copy the template with "
                                "`cp -rL`, and give the copy"));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<WeightFile> file,
                     WeightFile::Open(file_system, path_of(name)));
    weights_.push_back(std::move(file));
  }
  const size_t weight_file_count = names_.size();
  for (const std::string& name : found) {
    const auto end = names_.begin() + static_cast<int>(weight_file_count);
    if (std::find(names_.begin(), end, name) != end) continue;
    if (name == kManifestName) continue;  // The export has its own.
    const std::optional<struct stat> status = opened->Look(name);
    if (!status.has_value() || !S_ISREG(status->st_mode) ||
        status->st_size > kCopiedBytesMax || IsOtherWeights(name) ||
        name[0] == '.') {
      use_.left_out.push_back(name);
      continue;
    }
    ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                     file_system.OpenForRead(path_of(name)));
    names_.push_back(name);
    copied_.push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::Status ModelTemplate::MatchTensors(const v1::Layout& layout) {
  const std::vector<TensorPlace>& places = run_layout_.tensors();
  std::map<std::string, int> by_name;
  std::map<std::string, std::pair<int, std::string>> by_adapter_name;
  for (int i = 0; i < static_cast<int>(places.size()); ++i) {
    by_name[places[i].name] = i;
    if (!is_adapter_) continue;
    for (auto& [name, adapter] : NamesInAdapter(places[i].name)) {
      by_adapter_name.try_emplace(name, i, adapter);
    }
  }
  std::vector<bool> is_found(places.size());
  std::string adapter;
  for (int f = 0; f < static_cast<int>(weights_.size()); ++f) {
    const std::vector<SafetensorsEntry>& entries = weights_[f]->entries();
    for (int e = 0; e < static_cast<int>(entries.size()); ++e) {
      Tensor tensor{f, e};
      const std::string name = RunTensorName(entries[e].name);
      const auto wrong = [&](absl::string_view what) {
        return Wrong(absl::StrCat(weights_[f]->path(), ": tensor ",
                                  entries[e].name, " ", what));
      };
      if (const auto found = by_name.find(name); found != by_name.end()) {
        tensor.place = found->second;
      } else if (const auto of_adapter = by_adapter_name.find(name);
                 of_adapter != by_adapter_name.end()) {
        tensor.place = of_adapter->second.first;
        if (adapter.empty()) adapter = of_adapter->second.second;
        if (adapter != of_adapter->second.second) {
          return wrong(absl::StrCat(
              "may be of the run's adapter ", adapter, " or of ",
              of_adapter->second.second,
              ": load the run with atoll.fetch, and save each adapter"));
        }
      }
      tensors_.push_back(tensor);
      if (tensor.place < 0) continue;
      is_found[tensor.place] = true;
      const v1::TensorSpec& spec = layout.tensors(tensor.place);
      if (!HasShape(entries[e], spec.shape())) {
        return wrong(absl::StrCat("has shape ", ShapeText(entries[e].shape),
                                  ", but the run has ",
                                  ShapeText(spec.shape()),
                                  ": save the model that the run was created "
                                  "with"));
      }
      if (!IsFloat(entries[e].dtype)) {
        return wrong(absl::StrCat("is ", entries[e].dtype,
                                  ", which cannot hold the run's values: save "
                                  "the model in F32, BF16 or F16"));
      }
    }
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!is_found[i]) missing.push_back(places[i].name);
  }
  if (missing.empty()) return absl::OkStatus();
  return Wrong(absl::StrCat(
      "the template ", directory_, " lacks the run's tensors ",
      SomeOf(missing),
      ": save the model that the run was created with; if its names were "
      "mapped (`names`), load the run with atoll.fetch, and save that"));
}

absl::StatusOr<ModelTemplate::Content> ModelTemplate::ReadContent(
    const Tensor& tensor, std::stop_token stop) const {
  const WeightFile& file = *weights_[tensor.file];
  const SafetensorsEntry& entry = EntryOf(tensor);
  int64_t count = 1;
  for (const int64_t size : entry.shape) count *= size;
  const int64_t element_bytes = (entry.end - entry.begin) / count;
  Content content;
  codec::Sha256 sha;
  std::string piece, first;
  for (int64_t at = entry.begin; at < entry.end; at += kPieceBytes) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    piece.resize(std::min(kPieceBytes, entry.end - at));
    RETURN_IF_ERROR(
        file.Read(file.data_begin() + at, absl::MakeSpan(piece)));
    sha.Update(piece);
    if (first.empty()) first = piece.substr(0, element_bytes);
    // Elements do not cross pieces. Equal to its own shift: one value.
    content.is_constant =
        content.is_constant && piece.compare(0, element_bytes, first) == 0 &&
        std::memcmp(piece.data(), piece.data() + element_bytes,
                    piece.size() - element_bytes) == 0;
  }
  content.digest = sha.Finish();
  return content;
}

absl::Status ModelTemplate::FindTied(std::stop_token stop) {
  using Kind = std::pair<std::string, std::vector<int64_t>>;
  const auto kind_of = [&](const Tensor& tensor) {
    return Kind(EntryOf(tensor).dtype, EntryOf(tensor).shape);
  };
  std::map<Kind, std::vector<const Tensor*>> of_run;
  for (const Tensor& tensor : tensors_) {
    if (tensor.place >= 0) of_run[kind_of(tensor)].push_back(&tensor);
  }
  std::map<const Tensor*, Content> contents;
  std::vector<std::pair<Tensor*, int>> ties;
  for (Tensor& tensor : tensors_) {
    const SafetensorsEntry& entry = EntryOf(tensor);
    if (tensor.place >= 0) {
      ++use_.filled_count;
      continue;
    }
    const auto candidates = of_run.find(kind_of(tensor));
    std::vector<const Tensor*> equal;
    if (candidates != of_run.end() && entry.end > entry.begin) {
      ASSIGN_OR_RETURN(const Content mine, ReadContent(tensor, stop));
      for (const Tensor* other : candidates->second) {
        auto known = contents.find(other);
        if (known == contents.end()) {
          ASSIGN_OR_RETURN(const Content theirs, ReadContent(*other, stop));
          known = contents.emplace(other, theirs).first;
        }
        if (known->second.digest == mine.digest &&
            (!mine.is_constant ||
             LastWord(EntryOf(*other).name) == LastWord(entry.name))) {
          equal.push_back(other);
        }
      }
      if (!equal.empty() && (mine.is_constant || equal.size() > 1)) {
        return Wrong(absl::StrCat(
            "the template's tensor ", entry.name, " equals the run's ",
            EntryOf(*equal[0]).name,
            equal.size() > 1
                ? absl::StrCat(" and ", EntryOf(*equal[1]).name)
                : "",
            ", and may be tied to it or not: save the model after a step of "
            "training, when only tied tensors are equal"));
      }
    }
    if (equal.empty()) {
      ++use_.kept_count;
      continue;
    }
    ties.emplace_back(&tensor, equal[0]->place);
    use_.tied.push_back(
        absl::StrCat(entry.name, " = ", EntryOf(*equal[0]).name));
  }
  for (const auto& [tensor, place] : ties) tensor->place = place;
  return absl::OkStatus();
}

absl::Status ModelTemplate::Write(const std::string& name,
                                  absl::Span<const float> parameters,
                                  const Append& append) const {
  const auto index =
      static_cast<size_t>(absl::c_find(names_, name) - names_.begin());
  if (index < weights_.size()) {
    return WriteWeights(static_cast<int>(index), parameters, append);
  }
  const RandomAccessFile& file = *copied_[index - weights_.size()];
  std::string piece;
  for (int64_t at = 0;; at += static_cast<int64_t>(piece.size())) {
    piece.resize(kPieceBytes);
    ASSIGN_OR_RETURN(const int64_t got, file.ReadAt(at, absl::MakeSpan(piece)));
    piece.resize(got);
    if (got == 0) return absl::OkStatus();
    if (at + got > kCopiedBytesMax) {
      return Wrong(absl::StrCat(directory_, "/", name,
                                " grows during the export: try again"));
    }
    RETURN_IF_ERROR(append(piece));
  }
}

absl::Status ModelTemplate::WriteWeights(int file,
                                         absl::Span<const float> parameters,
                                         const Append& append) const {
  const WeightFile& weights = *weights_[file];
  std::string piece;
  const auto copy = [&](int64_t begin, int64_t end) -> absl::Status {
    for (; begin < end; begin += static_cast<int64_t>(piece.size())) {
      piece.resize(std::min(kPieceBytes, end - begin));
      RETURN_IF_ERROR(weights.Read(begin, absl::MakeSpan(piece)));
      RETURN_IF_ERROR(append(piece));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(copy(0, weights.data_begin()));
  for (const Tensor& tensor : tensors_) {
    if (tensor.file != file) continue;
    const SafetensorsEntry& entry = EntryOf(tensor);
    if (tensor.place < 0) {
      RETURN_IF_ERROR(copy(weights.data_begin() + entry.begin,
                           weights.data_begin() + entry.end));
      continue;
    }
    const TensorPlace& place = run_layout_.tensors()[tensor.place];
    absl::Span<const float> left =
        parameters.subspan(place.model_offset, place.element_count);
    while (!left.empty()) {
      const absl::Span<const float> values = left.subspan(0, kPieceBytes / 8);
      piece.clear();
      if (!AppendAs(entry.dtype, values, piece)) {
        return Wrong(absl::StrCat(
            "the run's tensor ", place.name, " has a value that ", entry.dtype,
            " cannot hold: save the template in F32, and convert the export"));
      }
      RETURN_IF_ERROR(append(piece));
      left.remove_prefix(values.size());
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::worker
