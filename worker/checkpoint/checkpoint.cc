#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/codec/sha256.h"
#include "base/io/files.h"
#include "base/layout/digest.h"
#include "base/layout/external_model.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/model_config_file.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/weight_files.h"

namespace atl::worker {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kConfig[] = "config.json";
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr char kManifest[] = "manifest.json";
constexpr int kManifestFormat = 1;
constexpr int64_t kPieceBytes = 4 << 20;
constexpr int64_t kSmallFileBytesMax = 16 << 20;

std::string MakePath(const std::string& directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

absl::string_view AsBytes(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

// A file that is hashed while it is written.
class HashedFile {
 public:
  static absl::StatusOr<std::unique_ptr<HashedFile>> Create(
      FileSystem& file_system, const std::string& path) {
    auto file = std::make_unique<HashedFile>();
    ASSIGN_OR_RETURN(file->file_, file_system.OpenForWrite(path));
    return file;
  }

  absl::Status Append(absl::string_view bytes,
                      const std::stop_token& stop = {}) {
    while (!bytes.empty()) {
      if (stop.stop_requested()) return absl::CancelledError("stopped");
      // In pieces, so that hashing finds the bytes in the cache.
      const absl::string_view piece = bytes.substr(0, kPieceBytes);
      sha_.Update(piece);
      RETURN_IF_ERROR(file_->WriteAt(size_bytes_, piece));
      size_bytes_ += static_cast<int64_t>(piece.size());
      bytes.remove_prefix(piece.size());
    }
    return absl::OkStatus();
  }

  absl::Status Finish(absl::string_view name, OrderedJson& files) {
    RETURN_IF_ERROR(file_->Sync());
    files.push_back({{"name", std::string(name)},
                     {"bytes", size_bytes_},
                     {"sha256", codec::ToHex(sha_.Finish())}});
    return absl::OkStatus();
  }

  int64_t size_bytes() const { return size_bytes_; }

 private:
  std::unique_ptr<RandomAccessFile> file_;
  codec::Sha256 sha_;
  int64_t size_bytes_ = 0;
};

absl::Status WriteText(FileSystem& file_system, const std::string& directory,
                       const char* name, absl::string_view text,
                       OrderedJson& files, int64_t& size_bytes) {
  ASSIGN_OR_RETURN(const auto file,
                   HashedFile::Create(file_system, MakePath(directory, name)));
  RETURN_IF_ERROR(file->Append(text));
  size_bytes += file->size_bytes();
  return file->Finish(name, files);
}

// Tensors [begin, end) of the layout, one weight file.
struct WeightRange {
  int begin = 0;
  int end = 0;
  int64_t element_count = 0;
};

std::vector<WeightRange> CutWeights(const v1::Layout& layout,
                                    int64_t file_bytes_max) {
  std::vector<WeightRange> ranges(1);
  for (int i = 0; i < layout.tensors_size(); ++i) {
    int64_t count = 1;
    for (const int64_t dimension : layout.tensors(i).shape()) {
      count *= dimension;
    }
    const int64_t bytes =
        (ranges.back().element_count + count) * int64_t{sizeof(float)};
    if (bytes > file_bytes_max && ranges.back().end > ranges.back().begin) {
      ranges.push_back({i, i, 0});
    }
    ranges.back().end = i + 1;
    ranges.back().element_count += count;
  }
  return ranges;
}

absl::Status WriteWeightFile(FileSystem& file_system,
                             const std::string& directory,
                             const std::string& name, const v1::Layout& layout,
                             const WeightRange& range,
                             absl::Span<const float> parameters,
                             const std::stop_token& stop, OrderedJson& files,
                             int64_t& size_bytes) {
  std::vector<SafetensorsEntry> entries;
  for (int i = range.begin; i < range.end; ++i) {
    const v1::TensorSpec& tensor = layout.tensors(i);
    SafetensorsEntry entry;
    entry.name = tensor.name();
    entry.shape.assign(tensor.shape().begin(), tensor.shape().end());
    entries.push_back(std::move(entry));
  }
  const std::string preamble = SafetensorsPreamble(entries);
  ASSIGN_OR_RETURN(const auto file,
                   HashedFile::Create(file_system, MakePath(directory, name)));
  RETURN_IF_ERROR(file->Append(preamble));
  RETURN_IF_ERROR(file->Append(AsBytes(parameters), stop));
  size_bytes += file->size_bytes();
  return file->Finish(name, files);
}

absl::Status WriteWeights(FileSystem& file_system, const std::string& directory,
                          const v1::Layout& layout,
                          absl::Span<const float> parameters,
                          const CheckpointOptions& options, OrderedJson& files,
                          int64_t& size_bytes) {
  const std::vector<WeightRange> ranges =
      CutWeights(layout, options.weight_file_bytes_max);
  OrderedJson map = OrderedJson::object();
  int64_t offset = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::string name =
        ranges.size() == 1 ? kWeights
                           : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                             i + 1, ranges.size());
    for (int t = ranges[i].begin; t < ranges[i].end; ++t) {
      map[layout.tensors(t).name()] = name;
    }
    RETURN_IF_ERROR(
        WriteWeightFile(file_system, directory, name, layout, ranges[i],
                        parameters.subspan(offset, ranges[i].element_count),
                        options.stop, files, size_bytes));
    offset += ranges[i].element_count;
  }
  if (ranges.size() == 1) return absl::OkStatus();
  OrderedJson index;
  index["metadata"]["total_size"] = offset * int64_t{sizeof(float)};
  index["weight_map"] = std::move(map);
  return WriteText(file_system, directory, kIndex, index.dump(2) + "\n", files,
                   size_bytes);
}

void RemoveDirectory(FileSystem& file_system, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names =
      file_system.List(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    file_system.Remove(MakePath(directory, name)).IgnoreError();
  }
  file_system.Remove(directory).IgnoreError();
}

absl::Status WriteFiles(FileSystem& file_system, const std::string& directory,
                        const v1::ModelSpec& model, const v1::Layout& layout,
                        absl::Span<const float> parameters,
                        const CheckpointSource& source,
                        const CheckpointOptions& options,
                        CheckpointFiles& written) {
  OrderedJson files = OrderedJson::array();
  RETURN_IF_ERROR(WriteWeights(file_system, directory, layout, parameters,
                               options, files, written.size_bytes));
  if (!IsExternal(model)) {
    RETURN_IF_ERROR(WriteText(file_system, directory, kConfig,
                              ModelConfigJson(model), files,
                              written.size_bytes));
    RETURN_IF_ERROR(WriteText(file_system, directory, kGenerationConfig,
                              GenerationConfigJson(model), files,
                              written.size_bytes));
  }
  ASSIGN_OR_RETURN(const RunLayout run_layout, RunLayout::Create(layout));
  written.parameters_sha256 = ParametersSha256(run_layout, parameters);
  OrderedJson manifest;
  manifest["format"] = kManifestFormat;
  manifest["kind"] = "atoll checkpoint";
  if (IsExternal(model)) manifest["architecture"] = kExternalArchitecture;
  manifest["run_id"] = source.run_id;
  manifest["run_epoch"] = source.run_epoch;
  manifest["commit_seq"] = source.commit_seq;
  manifest["version"] = source.version;
  manifest["layout_fingerprint"] =
      absl::StrFormat("%016x", run_layout.fingerprint());
  manifest["element_count"] = run_layout.element_count();
  manifest["parameters_sha256"] = written.parameters_sha256;
  manifest["files"] = std::move(files);
  OrderedJson own = OrderedJson::array();  // The manifest does not list itself.
  RETURN_IF_ERROR(WriteText(file_system, directory, kManifest,
                            manifest.dump(2) + "\n", own, written.size_bytes));
  return file_system.SyncDirectory(directory);
}

absl::Status PutInPlace(FileSystem& file_system, const std::string& temporary,
                        const std::string& directory) {
  const std::string old = absl::StrCat(directory, ".old");
  const bool replaces = file_system.Exists(directory);
  if (replaces) {
    RemoveDirectory(file_system, old);
    RETURN_IF_ERROR(file_system.Rename(directory, old));
  }
  RETURN_IF_ERROR(file_system.Rename(temporary, directory));
  RETURN_IF_ERROR(file_system.SyncDirectory(ParentDirectory(directory)));
  if (replaces) RemoveDirectory(file_system, old);
  return absl::OkStatus();
}

absl::Status CheckTarget(FileSystem& file_system,
                         const std::string& directory) {
  if (!file_system.Exists(directory)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   file_system.List(directory));
  if (names.empty() || file_system.Exists(MakePath(directory, kManifest))) {
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(
      absl::StrCat(directory,
                   " is not empty and holds no checkpoint: give another "
                   "directory, or empty this one"));
}

// True if WriteCheckpoint made `directory` of an external model.
bool HoldsExternalModel(FileSystem& file_system, const std::string& directory) {
  const absl::StatusOr<std::string> text = ReadFile(
      file_system, MakePath(directory, kManifest), kSmallFileBytesMax);
  if (!text.ok()) return false;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() &&
         json.value("architecture", Json()) == kExternalArchitecture;
}

// SHA-256 by file name, from the manifest; nullopt without one.
absl::StatusOr<std::optional<std::map<std::string, std::string>>>
ExpectedSha256s(FileSystem& file_system, const std::string& directory) {
  const std::string path = MakePath(directory, kManifest);
  const absl::StatusOr<std::string> text =
      ReadFile(file_system, path, kSmallFileBytesMax);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  RETURN_IF_ERROR(text.status());
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kManifestFormat) {
    return DamagedFile(path, "it is not a manifest of this program's format");
  }
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array()) {
    return DamagedFile(path, "it lists no files");
  }
  std::map<std::string, std::string> sums;
  for (const Json& file : *files) {
    if (!file.is_object()) continue;
    const auto name = file.find("name");
    const auto sha = file.find("sha256");
    if (name != file.end() && name->is_string() && sha != file.end() &&
        sha->is_string()) {
      sums[name->get<std::string>()] = sha->get<std::string>();
    }
  }
  return sums;
}

using WeightFiles = std::vector<std::unique_ptr<WeightFile>>;

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The layout's tensors by their name in a file.
class TensorNames {
 public:
  explicit TensorNames(const v1::Layout& layout) {
    for (const v1::TensorSpec& tensor : layout.tensors()) {
      tensors_[tensor.name()] = &tensor;
    }
  }

  // The tensor that a file calls `name`, or null.
  const v1::TensorSpec* Find(const std::string& name) const {
    auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      // The saved body of a GPT-2 lacks the prefix.
      found = tensors_.find(absl::StrCat("transformer.", name));
    }
    return found == tensors_.end() ? nullptr : found->second;
  }

  // True for buffers that follow from the configuration (in old exports of
  // Llama and GPT-2), and for a head that is the embedding.
  bool IsIgnored(const std::string& name) const {
    return Find(name) == nullptr &&
           (absl::EndsWith(name, ".rotary_emb.inv_freq") ||
            absl::EndsWith(name, ".attn.bias") ||
            absl::EndsWith(name, ".attn.masked_bias") ||
            name == "lm_head.weight");
  }

 private:
  std::map<std::string, const v1::TensorSpec*> tensors_;
};

// A layout has no scalars: [1] stands for [].
bool HasShape(const SafetensorsEntry& entry, const v1::TensorSpec& tensor) {
  if (entry.shape.empty()) {
    return tensor.shape_size() == 1 && tensor.shape(0) == 1;
  }
  return std::equal(tensor.shape().begin(), tensor.shape().end(),
                    entry.shape.begin(), entry.shape.end());
}

// Checks that the files hold the layout's tensors, each once, in its shape.
absl::Status CheckTensors(const std::string& directory,
                          const WeightFiles& files, const v1::Layout& layout,
                          const TensorNames& names) {
  std::map<std::string, const v1::TensorSpec*> missing;
  std::set<const v1::TensorSpec*> seen;
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    missing[tensor.name()] = &tensor;
  }
  for (const auto& file : files) {
    for (const SafetensorsEntry& entry : file->entries()) {
      if (names.IsIgnored(entry.name)) continue;
      const auto wrong = [&](absl::string_view what) {
        return absl::InvalidArgumentError(
            absl::StrCat(file->path(), ": tensor ", entry.name, " ", what));
      };
      const v1::TensorSpec* found = names.Find(entry.name);
      if (found == nullptr) {
        return wrong(
            "is not in this model: give a model of the same architecture "
            "(config.json says which), or one with exactly the tensors of "
            "the run's list");
      }
      if (!seen.insert(found).second) return wrong("comes twice");
      if (entry.dtype != "F32" && entry.dtype != "BF16" &&
          entry.dtype != "F16") {
        return wrong(absl::StrCat("is ", entry.dtype,
                                  ": convert it to F32, BF16 or F16"));
      }
      const v1::TensorSpec& tensor = *found;
      if (!HasShape(entry, tensor)) {
        return wrong(absl::StrCat(
            "has shape ", ShapeText(entry.shape), ", but this model needs ",
            ShapeText(tensor.shape()), ": give a model of the same sizes"));
      }
      missing.erase(tensor.name());
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      files.size() == 1 ? files[0]->path() : directory, " lacks tensor ",
      missing.begin()->first, " of the model",
      missing.size() == 1 ? ""
                          : absl::StrCat(" and ", missing.size() - 1, " more"),
      ": give a model of the same architecture, whole"));
}

}  // namespace

absl::StatusOr<CheckpointFiles> WriteCheckpoint(
    FileSystem& file_system, const std::string& directory,
    const v1::ModelSpec& model, const v1::Layout& layout,
    absl::Span<const float> parameters, const CheckpointSource& source,
    const CheckpointOptions& options) {
  std::string target = directory;
  while (target.size() > 1 && absl::EndsWith(target, "/")) target.pop_back();
  RETURN_IF_ERROR(CheckTarget(file_system, target));
  const std::string temporary = absl::StrCat(target, ".tmp");
  RemoveDirectory(file_system, temporary);
  RETURN_IF_ERROR(file_system.CreateDirectories(temporary));
  CheckpointFiles written;
  absl::Status status = WriteFiles(file_system, temporary, model, layout,
                                   parameters, source, options, written);
  if (status.ok() && options.stop.stop_requested()) {
    status = absl::CancelledError("stopped");
  }
  if (status.ok()) status = PutInPlace(file_system, temporary, target);
  if (!status.ok()) {
    RemoveDirectory(file_system, temporary);
    return Annotate(status,
                    absl::StrCat("cannot write the checkpoint ", target));
  }
  return written;
}

absl::StatusOr<v1::ModelSpec> ReadCheckpointModel(
    FileSystem& file_system, const std::string& directory) {
  const std::string path = MakePath(directory, kConfig);
  const absl::StatusOr<std::string> text =
      ReadFile(file_system, path, kSmallFileBytesMax);
  if (absl::IsNotFound(text.status())) {
    if (HoldsExternalModel(file_system, directory)) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory,
          " holds the parameters of an external model, with which only its own "
          "program can compute: load model.safetensors there"));
    }
    return absl::NotFoundError(absl::StrCat(
        directory, " holds no model: there is no config.json in it"));
  }
  RETURN_IF_ERROR(text.status());
  absl::StatusOr<v1::ModelSpec> model = ParseModelConfig(*text);
  if (!model.ok()) return Annotate(model.status(), directory);
  return model;
}

absl::Status ReadCheckpoint(FileSystem& file_system,
                            const std::string& directory,
                            const v1::Layout& layout,
                            absl::Span<float> parameters,
                            std::stop_token stop) {
  ASSIGN_OR_RETURN(const RunLayout run_layout, RunLayout::Create(layout));
  if (static_cast<int64_t>(parameters.size()) != run_layout.element_count()) {
    return absl::InternalError("parameters are not of the layout's length");
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListWeightFiles(file_system, directory));
  ASSIGN_OR_RETURN(const auto sums, ExpectedSha256s(file_system, directory));
  WeightFiles files;
  for (const std::string& name : names) {
    absl::StatusOr<std::unique_ptr<WeightFile>> file =
        WeightFile::Open(file_system, MakePath(directory, name));
    if (absl::IsNotFound(file.status())) {
      return absl::NotFoundError(absl::StrCat(
          MakePath(directory, name),
          ", which the model's index names, is missing: copy the model whole"));
    }
    RETURN_IF_ERROR(file.status());
    files.push_back(*std::move(file));
  }
  const TensorNames tensors(layout);
  RETURN_IF_ERROR(CheckTensors(directory, files, layout, tensors));
  std::map<std::string, int64_t> offsets;
  for (const TensorPlace& place : run_layout.tensors()) {
    offsets[place.name] = place.model_offset;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    for (const SafetensorsEntry& entry : files[i]->entries()) {
      if (stop.stop_requested()) return absl::CancelledError("stopped");
      const v1::TensorSpec* tensor = tensors.Find(entry.name);
      float* const values = tensor == nullptr
                                ? nullptr
                                : parameters.data() + offsets[tensor->name()];
      RETURN_IF_ERROR(files[i]->ReadNext(values));
    }
    if (!sums.has_value()) continue;
    const auto sum = sums->find(names[i]);
    if (sum == sums->end()) {
      return DamagedFile(MakePath(directory, kManifest),
                         absl::StrCat("it does not list ", names[i]));
    }
    if (files[i]->FinishSha256() != sum->second) {
      return DamagedFile(files[i]->path(), "its SHA-256 is not the manifest's");
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::worker
