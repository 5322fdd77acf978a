#include "worker/api/import_model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "base/io/posix_file_system.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/checkpoint/checkpoint.h"

namespace atl::worker {
namespace {

// The elements of one fragment in its flat order.
std::vector<float> Gather(const RunLayout& layout, int32_t fragment,
                          absl::Span<const float> model) {
  std::vector<float> elements(layout.fragment_element_count(fragment));
  for (const int32_t index : layout.fragment_tensors(fragment)) {
    const TensorPlace& place = layout.tensors()[index];
    std::copy_n(model.begin() + place.model_offset, place.element_count,
                elements.begin() + place.fragment_offset);
  }
  return elements;
}

absl::Status CheckFinite(const std::string& directory, const RunLayout& layout,
                         absl::Span<const float> model) {
  for (const TensorPlace& place : layout.tensors()) {
    const auto values = model.subspan(place.model_offset, place.element_count);
    const auto bad = std::find_if_not(values.begin(), values.end(),
                                      [](float x) { return std::isfinite(x); });
    if (bad == values.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        directory, ": tensor ", place.name, " has a value that is ",
        std::isnan(*bad) ? "NaN" : "infinite", " (element ",
        bad - values.begin(),
        "): no run can start from it; give a model whose values are finite"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelToImport> ReadModelToImport(const std::string& directory,
                                                const v1::Layout& layout,
                                                std::stop_token stop) {
  ASSIGN_OR_RETURN(const RunLayout run_layout, RunLayout::Create(layout));
  ModelToImport model;
  model.parameters.resize(run_layout.element_count());
  RETURN_IF_ERROR(ReadCheckpoint(PosixFileSystem(), directory, layout,
                                 absl::MakeSpan(model.parameters), stop));
  RETURN_IF_ERROR(CheckFinite(directory, run_layout, model.parameters));
  for (int32_t f = 0; f < run_layout.fragment_count(); ++f) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    const std::vector<float> elements =
        Gather(run_layout, f, model.parameters);
    model.fragment_digests.push_back(
        RangeDigest(run_layout, f, {0, run_layout.fragment_block_count(f)},
                    elements)
            .ToHex());
  }
  model.parameters_sha256 = ParametersSha256(run_layout, model.parameters);
  return model;
}

absl::Status CheckImport(const ModelToImport& model, const v1::Run& run) {
  const v1::InitSpec& init = run.spec().init();
  if (!init.import()) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", run.run_id(),
                     " generates version 0 itself: create a run with "
                     "init.model in its run file"));
  }
  if (!std::equal(init.fragment_digests().begin(),
                  init.fragment_digests().end(),
                  model.fragment_digests.begin(),
                  model.fragment_digests.end())) {
    return absl::AlreadyExistsError(
        absl::StrCat("run ", run.run_id(),
                     " was created for another model than this one: give that "
                     "model, or create another run for this one"));
  }
  return absl::OkStatus();
}

absl::Status ImportModel(const ModelToImport& model, const v1::Run& run,
                         server::ParameterClient& client,
                         const ImportModelOptions& options) {
  RETURN_IF_ERROR(CheckImport(model, run));
  ASSIGN_OR_RETURN(const RunLayout layout,
                   RunLayout::Create(run.spec().layout()));
  constexpr int64_t kElementBytes = sizeof(float);
  const int64_t total = layout.element_count() * kElementBytes;
  int64_t done = 0;
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    const std::vector<float> elements = Gather(layout, f, model.parameters);
    server::CallBounds bounds;
    bounds.deadline = absl::Now() + options.fragment_timeout;
    bounds.stop = options.stop;
    bounds.on_waiting = options.on_waiting;
    if (options.on_progress) {
      bounds.on_progress = [&](int64_t bytes) {
        options.on_progress(done + bytes, total);
      };
    }
    RETURN_IF_ERROR(Annotate(client.Import(f, elements, bounds).status,
                             absl::StrCat("pushing fragment ", f)));
    done += static_cast<int64_t>(elements.size()) * kElementBytes;
  }
  return absl::OkStatus();
}

}  // namespace atl::worker
