#include "worker/checkpoint/checkpoint.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/codec/f32_bytes.h"
#include "base/codec/sha256.h"
#include "base/io/files.h"
#include "base/layout/digest.h"
#include "base/layout/external_model.h"
#include "base/safetensors/safetensors.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/model_config_file.h"
#include "worker/checkpoint/weight_files.h"

namespace atl::worker {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kHashedBytes = 4 << 20;
constexpr int64_t kSmallFileBytesMax = 16 << 20;

std::string MakePath(const std::string &directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

absl::Status Unfinished(const std::string &directory) {
  return absl::FailedPreconditionError(
      absl::StrCat("an export into ", directory,
                   " is not finished: wait for it, or repeat it"));
}

// The manifest, if there is one. DATA_LOSS: it is not of an export.
// FAILED_PRECONDITION: it is unfinished.
absl::StatusOr<std::optional<CheckpointManifest>> ReadManifest(
    FileSystem &file_system, const std::string &directory) {
  const std::string path = MakePath(directory, kManifestName);
  const absl::StatusOr<std::string> text =
      ReadFile(file_system, path, kSmallFileBytesMax);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  RETURN_IF_ERROR(text.status());
  std::optional<CheckpointManifest> manifest = ParseCheckpointManifest(*text);
  if (!manifest.has_value()) {
    return DamagedFile(path, "it is not a manifest of this program's format");
  }
  if (!manifest->is_finished) return Unfinished(directory);
  return manifest;
}

using WeightFiles = std::vector<std::unique_ptr<WeightFile>>;

// The layout's tensors by their name in a file.
class TensorNames {
 public:
  explicit TensorNames(const v1::Layout &layout) {
    for (const v1::TensorSpec &tensor : layout.tensors()) {
      tensors_[tensor.name()] = &tensor;
    }
  }

  // The tensor that a file calls `name`, or null.
  const v1::TensorSpec *Find(const std::string &name) const {
    auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      // The saved body of a GPT-2 lacks the prefix.
      found = tensors_.find(absl::StrCat("transformer.", name));
    }
    return found == tensors_.end() ? nullptr : found->second;
  }

  // True for buffers that follow from the configuration (in old exports of
  // Llama and GPT-2), and for a head that is the embedding.
  bool IsIgnored(const std::string &name) const {
    return Find(name) == nullptr &&
           (absl::EndsWith(name, ".rotary_emb.inv_freq") ||
            absl::EndsWith(name, ".attn.bias") ||
            absl::EndsWith(name, ".attn.masked_bias") ||
            name == "lm_head.weight");
  }

 private:
  std::map<std::string, const v1::TensorSpec *> tensors_;
};

// Checks that the files hold the layout's tensors, each once, in its shape.
absl::Status CheckTensors(const std::string &directory,
                          const WeightFiles &files, const v1::Layout &layout,
                          const TensorNames &names) {
  std::map<std::string, const v1::TensorSpec *> missing;
  std::set<const v1::TensorSpec *> seen;
  for (const v1::TensorSpec &tensor : layout.tensors()) {
    missing[tensor.name()] = &tensor;
  }
  for (const auto &file : files) {
    for (const SafetensorsEntry &entry : file->entries()) {
      if (names.IsIgnored(entry.name)) continue;
      const auto wrong = [&](absl::string_view what) {
        return absl::InvalidArgumentError(
            absl::StrCat(file->path(), ": tensor ", entry.name, " ", what));
      };
      const v1::TensorSpec *found = names.Find(entry.name);
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
      const v1::TensorSpec &tensor = *found;
      if (!HasShape(entry, tensor.shape())) {
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

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Open(
    FileSystem &file_system, const std::string &directory,
    const v1::ModelSpec &model, const v1::Layout &layout,
    const CheckpointSource &source, const CheckpointOptions &options) {
  ASSIGN_OR_RETURN(RunLayout run_layout, RunLayout::Create(layout));
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter(
      model, layout, source, options, std::move(run_layout)));
  ExportDirectoryOptions target;
  if (!options.template_directory.empty()) {
    RETURN_IF_ERROR(
        ReadManifest(file_system, options.template_directory).status());
    ASSIGN_OR_RETURN(
        writer->template_,
        ModelTemplate::Open(file_system, options.template_directory, layout,
                            options.stop));
    target.names = writer->template_->names();
  } else {
    writer->ranges_ = CutWeights(layout, options.weight_file_bytes_max);
    for (const WeightRange &range : writer->ranges_) {
      target.names.push_back(range.name);
    }
    if (writer->ranges_.size() > 1) target.names.push_back(kWeightIndexName);
    if (!IsExternal(model)) {
      target.names.push_back(kConfigName);
      target.names.push_back(kGenerationConfigName);
    }
  }
  target.source = source;
  target.replaces_other = options.replaces_other;
  std::string path = directory;
  while (path.size() > 1 && absl::EndsWith(path, "/")) path.pop_back();
  ASSIGN_OR_RETURN(writer->directory_,
                   ExportDirectory::Open(file_system, path, std::move(target)));
  return writer;
}

std::vector<CheckpointWriter::WeightRange> CheckpointWriter::CutWeights(
    const v1::Layout &layout, int64_t file_bytes_max) {
  std::vector<WeightRange> ranges(1);
  for (int i = 0; i < layout.tensors_size(); ++i) {
    int64_t count = 1;
    for (const int64_t dimension : layout.tensors(i).shape()) {
      count *= dimension;
    }
    const int64_t bytes =
        (ranges.back().element_count + count) * int64_t{sizeof(float)};
    if (bytes > file_bytes_max && ranges.back().end > ranges.back().begin) {
      ranges.push_back({"", i, i, 0});
    }
    ranges.back().end = i + 1;
    ranges.back().element_count += count;
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    ranges[i].name = ranges.size() == 1
                         ? kWeightsName
                         : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                           i + 1, ranges.size());
  }
  return ranges;
}

// Writes a file, and hashes it meanwhile.
absl::Status CheckpointWriter::WriteFile(
    const std::string &name,
    const std::function<absl::Status(const Append &)> &write) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                   directory_->Create(name));
  codec::Sha256 sha;
  int64_t size_bytes = 0;
  RETURN_IF_ERROR(write([&](absl::string_view bytes) -> absl::Status {
    while (!bytes.empty()) {
      if (options_.stop.stop_requested()) {
        return absl::CancelledError("stopped");
      }
      // In pieces, so that hashing finds the bytes in the cache.
      const absl::string_view piece = bytes.substr(0, kHashedBytes);
      sha.Update(piece);
      RETURN_IF_ERROR(file->WriteAt(size_bytes, piece));
      size_bytes += static_cast<int64_t>(piece.size());
      bytes.remove_prefix(piece.size());
    }
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(file->Sync());
  manifest_.files.push_back({name, size_bytes, codec::ToHex(sha.Finish())});
  return absl::OkStatus();
}

absl::Status CheckpointWriter::WriteText(const std::string &name,
                                         absl::string_view text) {
  return WriteFile(name,
                   [&](const Append &append) { return append(text); });
}

absl::Status CheckpointWriter::WriteWeights(
    absl::Span<const float> parameters) {
  OrderedJson map = OrderedJson::object();
  int64_t offset = 0;
  for (const WeightRange &range : ranges_) {
    std::vector<SafetensorsEntry> entries;
    for (int i = range.begin; i < range.end; ++i) {
      const v1::TensorSpec &tensor = layout_.tensors(i);
      SafetensorsEntry entry;
      entry.name = tensor.name();
      entry.shape.assign(tensor.shape().begin(), tensor.shape().end());
      map[entry.name] = range.name;
      entries.push_back(std::move(entry));
    }
    const std::string preamble = SafetensorsPreamble(entries);
    RETURN_IF_ERROR(WriteFile(
        range.name, [&](const Append &append) -> absl::Status {
          RETURN_IF_ERROR(append(preamble));
          return append(codec::F32Bytes(
              parameters.subspan(offset, range.element_count)));
        }));
    offset += range.element_count;
  }
  if (ranges_.size() == 1) return absl::OkStatus();
  OrderedJson index;
  index["metadata"]["total_size"] = offset * int64_t{sizeof(float)};
  index["weight_map"] = std::move(map);
  return WriteText(kWeightIndexName, absl::StrCat(index.dump(2), "\n"));
}

absl::Status CheckpointWriter::WriteAll(absl::Span<const float> parameters) {
  if (template_ != nullptr) {
    for (const std::string &name : template_->names()) {
      RETURN_IF_ERROR(WriteFile(name, [&](const Append &append) {
        return template_->Write(name, parameters, append);
      }));
    }
  } else {
    RETURN_IF_ERROR(WriteWeights(parameters));
    if (!IsExternal(model_)) {
      RETURN_IF_ERROR(WriteText(kConfigName, ModelConfigJson(model_)));
      RETURN_IF_ERROR(
          WriteText(kGenerationConfigName, GenerationConfigJson(model_)));
    }
  }
  if (IsExternal(model_)) manifest_.architecture = kExternalArchitecture;
  manifest_.layout_fingerprint =
      absl::StrFormat("%016x", run_layout_.fingerprint());
  manifest_.element_count = run_layout_.element_count();
  manifest_.parameters_sha256 = ParametersSha256(run_layout_, parameters);
  if (options_.stop.stop_requested()) return absl::CancelledError("stopped");
  return directory_->Commit(manifest_);
}

absl::StatusOr<CheckpointFiles> CheckpointWriter::Write(
    absl::Span<const float> parameters) {
  if (const absl::Status status = WriteAll(parameters); !status.ok()) {
    return Annotate(status, absl::StrCat("cannot write the checkpoint ",
                                         directory_->path()));
  }
  CheckpointFiles written;
  written.parameters_sha256 = manifest_.parameters_sha256;
  written.size_bytes = WriteCheckpointManifest(manifest_).size();
  for (const CheckpointManifest::File &file : manifest_.files) {
    written.size_bytes += file.size_bytes;
  }
  if (template_ != nullptr) written.template_use = template_->use();
  return written;
}

absl::StatusOr<CheckpointFiles> WriteCheckpoint(
    FileSystem &file_system, const std::string &directory,
    const v1::ModelSpec &model, const v1::Layout &layout,
    absl::Span<const float> parameters, const CheckpointSource &source,
    const CheckpointOptions &options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointWriter> writer,
                   CheckpointWriter::Open(file_system, directory, model, layout,
                                          source, options));
  return writer->Write(parameters);
}

absl::StatusOr<v1::ModelSpec> ReadCheckpointModel(
    FileSystem &file_system, const std::string &directory) {
  const std::string path = MakePath(directory, kConfigName);
  const absl::StatusOr<std::string> text =
      ReadFile(file_system, path, kSmallFileBytesMax);
  if (absl::IsNotFound(text.status())) {
    const auto manifest = ReadManifest(file_system, directory);
    if (absl::IsFailedPrecondition(manifest.status())) {
      return manifest.status();
    }
    if (manifest.ok() && manifest->has_value() &&
        (*manifest)->architecture == kExternalArchitecture) {
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

absl::Status ReadCheckpoint(FileSystem &file_system,
                            const std::string &directory,
                            const v1::Layout &layout,
                            absl::Span<float> parameters,
                            std::stop_token stop) {
  ASSIGN_OR_RETURN(const RunLayout run_layout, RunLayout::Create(layout));
  if (static_cast<int64_t>(parameters.size()) != run_layout.element_count()) {
    return absl::InternalError("parameters are not of the layout's length");
  }
  ASSIGN_OR_RETURN(const std::optional<CheckpointManifest> manifest,
                   ReadManifest(file_system, directory));
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListWeightFiles(file_system, directory));
  WeightFiles files;
  for (const std::string &name : names) {
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
  for (const TensorPlace &place : run_layout.tensors()) {
    offsets[place.name] = place.model_offset;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    for (const SafetensorsEntry &entry : files[i]->entries()) {
      if (stop.stop_requested()) return absl::CancelledError("stopped");
      const v1::TensorSpec *tensor = tensors.Find(entry.name);
      float *const values = tensor == nullptr
                                ? nullptr
                                : parameters.data() + offsets[tensor->name()];
      RETURN_IF_ERROR(files[i]->ReadNext(values));
    }
    if (!manifest.has_value()) continue;
    const auto listed = absl::c_find_if(
        manifest->files, [&](const CheckpointManifest::File &file) {
          return file.name == names[i];
        });
    if (listed == manifest->files.end()) {
      return DamagedFile(MakePath(directory, kManifestName),
                         absl::StrCat("it does not list ", names[i]));
    }
    if (files[i]->FinishSha256() != listed->sha256) {
      return DamagedFile(files[i]->path(), "its SHA-256 is not the manifest's");
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::worker
