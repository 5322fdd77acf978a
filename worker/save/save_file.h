// The SAVE of an island: what it needs to go on after a crash without a change
// of bits (worker/DESIGN.md, "The local checkpoint").
//
// The file: 8 bytes "ATOLLSAV", then as little-endian uint32 the format (4),
// the header's length and its CRC-32C; the header, JSON; then the sections, one
// after the other: those of SaveArrays, the bytes of every contribution, then of
// every fragment with error feedback e before and after. The header lists the
// sections with length and CRC-32C, and holds 64-bit numbers as JSON integers,
// messages as hex. Where an island is several processes each has a file, which
// says what it holds of the model ("held").
//
// Functions are thread-safe for different paths.

#ifndef WORKER_SAVE_SAVE_FILE_H_
#define WORKER_SAVE_SAVE_FILE_H_

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

// All but the numbers in bulk.
struct SaveHeader {
  // Its contributions are those of the sections: ReadSave fills them in.
  SaveSummary summary;
  int64_t step = 0;  // Next, by the run's clock.
  int64_t optimizer_step_count = 0;
  int64_t restart_step_count = -1;  // IslandState::restart_step_count.
  // Of a process that holds a part of the model: which elements of the model
  // order, rising. Arrays and contributions are of these. Not there: all.
  std::optional<std::vector<IndexRange>> held;
};

// `header`, without its contributions, as it stands in the file; and back.
//
// DATA_LOSS: it is none.
std::string SaveHeaderText(const SaveHeader& header);
absl::StatusOr<SaveHeader> ParseSaveHeaderText(absl::string_view text);

// What stands before the numbers in bulk, and says what they are.
struct SaveOutline {
  SaveHeader header;  // With summary.contributions.
  std::vector<v1::ContributionInfo> contributions;
  std::vector<v1::ContributionKey> feedback;
};

// A name for what the files of all processes of one save say alike, and no
// other save does.
std::string NameOfSave(const SaveOutline& outline);

// The error feedback of a fragment: FeedbackView with its own memory.
struct SavedFeedback {
  v1::ContributionKey key;
  std::vector<float> before;
  std::vector<float> after;

  FeedbackView View() const { return {key, before, after}; }
};

// The numbers in bulk, each of the model's elements; one that the run does not
// have is empty.
template <typename Floats>
struct SaveArrays {
  Floats first_moment;
  Floats second_moment;
  // Of a streaming run: local parameters, and what eager updates know of each
  // fragment (worker/core/local_update.h: m, P).
  Floats local;
  Floats eager_momentum;
  Floats eager_foreseen;
};

// A SAVE that was read.
struct Save {
  SaveHeader header;
  SaveArrays<std::vector<float>> arrays;
  // What is not known to be decided, each as it is pushed.
  std::vector<EncodedContribution> contributions;
  std::vector<SavedFeedback> feedback;
};

// What is written: a Save whose arrays are elsewhere.
struct SaveView {
  SaveArrays<absl::Span<const float>> arrays;
  std::vector<const EncodedContribution*> contributions;
  absl::Span<const FeedbackView> feedback;
};

// Replaces the SAVE at `path`: durable and whole on return, the old one after
// an error.
//
// Errors as the file system's; RESOURCE_EXHAUSTED: the disk is full.
absl::Status WriteSave(FileSystem& file_system, const std::string& path,
                       const SaveHeader& header, const SaveView& view);

// Reads what the SAVE at `path` is, without its numbers in bulk.
//
// As ReadSave; a file that is not as long as it has to be is damaged.
absl::StatusOr<SaveOutline> ReadSaveOutline(FileSystem& file_system,
                                            const std::string& path);

// Reads the SAVE at `path`.
//
// NOT_FOUND: there is none. DATA_LOSS: it is damaged, or of another format; the
// message says how. Else as the file system's.
absl::StatusOr<Save> ReadSave(FileSystem& file_system, const std::string& path);

}  // namespace atl::worker

#endif  // WORKER_SAVE_SAVE_FILE_H_
