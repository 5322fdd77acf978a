// The file format of local checkpoints: what an island needs to continue after
// a crash with the same bits (worker/DESIGN.md, "The local checkpoint").
//
// The file: 8 bytes "ATOLLSAV"; as little-endian uint32 the format (4), the
// header's length and its CRC-32C; the header, JSON; the sections. Sections are
// those of SaveArrays, the bytes of every contribution, then e before and after
// of every fragment with error feedback. The header has length and CRC-32C of
// each section, 64-bit numbers as JSON integers, messages as hex, and in "held"
// the part of the model that this process holds.
//
// Functions are thread-safe for different paths.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/plan.pb.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"
#include "worker/core/action.h"
#include "worker/core/contribution_encoder.h"

namespace atl::worker {

inline constexpr uint32_t kSaveFormat = 4;

// Everything except the large arrays.
struct SaveHeader {
  // ReadSave sets its contributions from the sections.
  SaveSummary summary;
  int64_t step = 0;  // Next, by the run's clock.
  int64_t optimizer_step_count = 0;
  int64_t restart_step_count = -1;  // IslandState::restart_step_count.
  // If the trainer is another process: the name of the state that it keeps
  // (empty: its first one), and tokens since the previous contribution of each
  // fragment. Without such a trainer token_counts is empty.
  std::string trainer_save_id;
  std::vector<int64_t> token_counts;
  // Run.run_uid, and the newest place of the coordinator's log that the island
  // had seen. Empty and not set in files of older programs.
  std::string run_uid;
  v1::LogPosition log;
  // The elements of the model order that the process holds, rising; arrays and
  // contributions are of these. nullopt: all.
  std::optional<std::vector<IndexRange>> held;
};

// The text of `header` in the file, without its contributions; and back.
// DATA_LOSS: invalid text.
std::string SaveHeaderText(const SaveHeader& header);
absl::StatusOr<SaveHeader> ParseSaveHeaderText(absl::string_view text);

// A local checkpoint without its large arrays.
struct SaveOutline {
  SaveHeader header;  // With summary.contributions.
  std::vector<v1::ContributionInfo> contributions;
  std::vector<v1::ContributionKey> feedback;
};

// The same for all files of one local checkpoint, and for no other.
std::string NameOfSave(const SaveOutline& outline);

// The error feedback of a fragment: FeedbackView with its own memory.
struct SavedFeedback {
  v1::ContributionKey key;
  std::vector<float> before;
  std::vector<float> after;

  FeedbackView View() const { return {key, before, after}; }
};

// The large arrays: one value a held element; empty if the run has none.
template <typename Floats>
struct SaveArrays {
  Floats first_moment;
  Floats second_moment;
  // Streaming runs: local parameters; m and P of worker/core/local_update.h.
  Floats local;
  Floats eager_momentum;
  Floats eager_foreseen;
};

struct Save {
  SaveHeader header;
  SaveArrays<std::vector<float>> arrays;
  // Contributions without a known outcome, each as pushed.
  std::vector<EncodedContribution> contributions;
  std::vector<SavedFeedback> feedback;
};

// A Save to write, whose memory the caller owns.
struct SaveView {
  SaveArrays<absl::Span<const float>> arrays;
  std::vector<const EncodedContribution*> contributions;
  absl::Span<const FeedbackView> feedback;
};

// Replaces the local checkpoint at `path`: durable and complete on return;
// after an error the old one stays. RESOURCE_EXHAUSTED: the disk is full.
// Others: the file system's.
absl::Status WriteSave(FileSystem& file_system, const std::string& path,
                       const SaveHeader& header, const SaveView& view);

// Reads the outline of the local checkpoint at `path`. Errors as ReadSave;
// DATA_LOSS also if the file has the wrong length.
absl::StatusOr<SaveOutline> ReadSaveOutline(FileSystem& file_system,
                                            const std::string& path);

// Reads the local checkpoint at `path`. NOT_FOUND: none. DATA_LOSS: damaged, or
// another format; the message says how. Others: the file system's.
absl::StatusOr<Save> ReadSave(FileSystem& file_system, const std::string& path);

}  // namespace atl::worker
