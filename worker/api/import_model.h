// A model directory as version 0 of a run. Functions block, print nothing and
// are thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "server/client/parameter_client.h"
#include "server/client/transfer.h"

namespace atl::worker {

// A complete, validated model.
struct ModelToImport {
  // Shape [layout.element_count()], in the model order.
  std::vector<float> parameters;
  // As InitSpec.fragment_digests.
  std::vector<std::string> fragment_digests;
  std::string parameters_sha256;
};

// Reads the model in `directory` for a run of `layout`. As ReadCheckpoint;
// INVALID_ARGUMENT: a value is not finite; the message names its tensor.
absl::StatusOr<ModelToImport> ReadModelToImport(const std::string& directory,
                                                const v1::Layout& layout,
                                                std::stop_token stop = {});

// Checks that `run` starts from `model`. FAILED_PRECONDITION: the run generates
// version 0 itself. ALREADY_EXISTS: it was created for another model.
absl::Status CheckImport(const ModelToImport& model, const v1::Run& run);

struct ImportModelOptions {
  std::stop_token stop;
  // Longest time for one fragment, retries included.
  absl::Duration fragment_timeout = absl::InfiniteDuration();
  // Bytes that the shards have, and in all; about once a second, on the
  // caller's thread. May be empty.
  std::function<void(int64_t, int64_t)> on_progress;
  // CallBounds::on_waiting.
  std::function<void(const server::Waiting&)> on_waiting;
};

// Pushes the parts of `model` that the shards of `run` lack as version 0.
// `client` must have the routes of all shards. As CheckImport; as
// ParameterClient::Import.
absl::Status ImportModel(const ModelToImport& model, const v1::Run& run,
                         server::ParameterClient& client,
                         const ImportModelOptions& options);

}  // namespace atl::worker
