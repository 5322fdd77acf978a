// A model directory that a person's own program wrote: save_pretrained of
// transformers or PEFT, or safetensors' save_file. An export takes its form,
// with a run's values.
//
// A tensor of the template has the value of the run's tensor of its name. The
// name counts as the package `atoll` names it (_module.py): without what
// wrappers prepend, and with _uHEX_ for a character that no run has. PEFT's
// files (adapter_model.safetensors) also lack the adapter's name and
// "modules_to_save". The run lacks the other tensors:
//
//   tied      Equal, in the template, to one tensor of the run: gets its value.
//   kept      Any other, such as a frozen layer or a buffer: stays.
//
// Equal tensors of one repeated value and with one last word of the name, such
// as two biases of zeros, may be tied or not: they are refused.
//
// Each file keeps its header, so names, shapes, dtypes, metadata and the index
// stay. Small files of other formats are copied. Links are refused.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"
#include "worker/checkpoint/weight_files.h"

namespace atl::worker {

// How much of a template an export has.
struct TemplateUse {
  int64_t filled_count = 0;           // Tensors of the run.
  int64_t kept_count = 0;             // Tensors as in the template.
  std::vector<std::string> tied;      // "lm_head.weight = wte.weight".
  std::vector<std::string> left_out;  // Names in the directory, not copied.
};

// The name that a run has for the tensor `name` of a PyTorch module.
std::string RunTensorName(absl::string_view name);

class ModelTemplate {
 public:
  // Longest file of another format than safetensors that is copied.
  static constexpr int64_t kCopiedBytesMax = 64 << 20;

  // Reads headers, and finds tied tensors. `file_system` must outlive the
  // object.
  //
  // NOT_FOUND: no weights. INVALID_ARGUMENT: a tensor of the run is missing or
  // has another shape; a dtype is not of floating-point numbers; a tensor may
  // be tied or not; a file is a link; both a model and an adapter. DATA_LOSS: a
  // file is damaged. Messages name the file or the tensor, and a remedy.
  static absl::StatusOr<std::unique_ptr<ModelTemplate>> Open(
      FileSystem& file_system, const std::string& directory,
      const v1::Layout& layout, std::stop_token stop = {});

  // The export's files.
  const std::vector<std::string>& names() const { return names_; }
  const TemplateUse& use() const { return use_; }

  // Writes the bytes of a file, in pieces. `parameters` is in the layout's
  // model order.
  //
  // INVALID_ARGUMENT: the template's dtype cannot hold a value. DATA_LOSS: the
  // file was cut since Open. Others: those of `append`.
  using Append = std::function<absl::Status(absl::string_view)>;
  absl::Status Write(const std::string& name,
                     absl::Span<const float> parameters,
                     const Append& append) const;

 private:
  // A tensor of a weight file.
  struct Tensor {
    int file = 0;
    int entry = 0;
    int place = -1;  // In run_layout_.tensors(); -1: kept.
  };
  struct Content;

  ModelTemplate(std::string directory, RunLayout run_layout)
      : directory_(std::move(directory)), run_layout_(std::move(run_layout)) {}

  absl::Status FindFiles(FileSystem& file_system);
  absl::Status MatchTensors(const v1::Layout& layout);
  absl::Status FindTied(std::stop_token stop);
  absl::StatusOr<Content> ReadContent(const Tensor& tensor,
                                      std::stop_token stop) const;
  absl::Status WriteWeights(int file, absl::Span<const float> parameters,
                            const Append& append) const;
  const SafetensorsEntry& EntryOf(const Tensor& tensor) const {
    return weights_[tensor.file]->entries()[tensor.entry];
  }

  const std::string directory_;
  const RunLayout run_layout_;
  bool is_adapter_ = false;
  std::vector<std::string> names_;  // First the weight files, as in weights_.
  std::vector<std::unique_ptr<WeightFile>> weights_;
  std::vector<std::unique_ptr<RandomAccessFile>> copied_;  // The names after.
  std::vector<Tensor> tensors_;  // In the order of files and entries.
  TemplateUse use_;
};

}  // namespace atl::worker
