// The file formats of local checkpoints: what an island needs to continue after
// a crash with the same bits (worker/DESIGN.md, "The local checkpoint").
//
// A whole save is a file. In a streaming run records may follow it, in a file
// of their own, each appended at a push: what was pushed, and which answers
// were applied since the push before. A restart loads the whole save, repeats
// the steps, and takes from the records what the steps cannot give.
//
// A save or record: 8 bytes "ATOLLSAV" or "ATOLLREC"; as little-endian uint32
// the format (4 or 5, and 1), the header's length and its CRC-32C; the header,
// JSON; the sections. Sections are those of SaveArrays (empty in a record), the
// bytes of every contribution, e before and after of every fragment with error
// feedback; in a record also the values of every answer, then P and m of every
// foreseen fragment. The header has length and CRC-32C of each section, 64-bit
// numbers as JSON integers, messages as hex, and in "held" the part of the
// model that this process holds.
//
// Functions are thread-safe for different paths.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/plan.pb.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"
#include "worker/core/action.h"
#include "worker/core/contribution_encoder.h"

namespace atl::worker {

// A whole save that records may follow has the second one: a program that does
// not read records refuses it.
inline constexpr uint32_t kSaveFormat = 4;
inline constexpr uint32_t kSaveFormatWithRecords = 5;
inline constexpr uint32_t kRecordFormat = 1;

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
  // Streaming runs: training losses since the previous contribution of each
  // fragment. Empty in files of older programs.
  std::vector<LossSum> losses;
  // Run.run_uid, and the newest place of the coordinator's log that the island
  // had seen. Empty and not set in files of older programs.
  std::string run_uid;
  v1::LogPosition log;
  // The elements of the model order that the process holds, rising; arrays and
  // contributions are of these. nullopt: all.
  std::optional<std::vector<IndexRange>> held;
  // A whole save that records follow: a name that no other one has.
  std::string name;
  // A record: the name of the whole save that it follows, and its number among
  // those that do, from 0.
  std::string base;
  int64_t record_index = 0;
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
  std::vector<AppliedAnswer> answers;  // Records only.
  std::vector<int32_t> foreseen;       // Records only: the fragments.
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

// An applied answer with its values, [F]; and P and m, [F] each, of a fragment
// after its push in an eager run (worker/core/local_update.h).
template <typename Floats>
struct AnswerValues {
  AppliedAnswer answer;
  Floats values;
};
template <typename Floats>
struct ForeseenValues {
  int32_t fragment = 0;
  Floats foreseen;
  Floats momentum;
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
  // Contributions without a known outcome, each as pushed. In a record: those
  // of its push.
  std::vector<EncodedContribution> contributions;
  std::vector<SavedFeedback> feedback;
  // Records only. Answers in the order of their steps, before the push.
  std::vector<AnswerValues<std::vector<float>>> answers;
  std::vector<ForeseenValues<std::vector<float>>> foreseen;
};

// A Save to write, whose memory the caller owns.
struct SaveView {
  SaveArrays<absl::Span<const float>> arrays;
  std::vector<const EncodedContribution*> contributions;
  std::vector<FeedbackView> feedback;
  std::vector<AnswerValues<absl::Span<const float>>> answers;
  std::vector<ForeseenValues<absl::Span<const float>>> foreseen;
};

// The parts of a Save to read. Others stay empty; kVerify checks their sums.
enum SaveParts : uint32_t {
  kMoments = 1 << 0,        // arrays.first_moment, second_moment.
  kLocal = 1 << 1,          // arrays.local.
  kEager = 1 << 2,          // arrays.eager_momentum, eager_foreseen.
  kContributions = 1 << 3,  // contributions.
  kFeedback = 1 << 4,       // feedback.
  kAnswers = 1 << 5,        // answers, foreseen.
  kVerify = 1 << 6,
  kAllParts = kVerify - 1,
};

// Replaces the local checkpoint at `path`: durable and complete on return;
// after an error the old one stays. Returns the bytes written.
// RESOURCE_EXHAUSTED: the disk is full. Others: the file system's.
absl::StatusOr<int64_t> WriteSave(FileSystem& file_system,
                                  const std::string& path,
                                  const SaveHeader& header,
                                  const SaveView& view);

// Appends a record at byte `offset` of the file `path`, and makes it durable.
// At 0 it replaces the file. Returns the bytes written; after an error it can
// be written again. Errors as WriteSave.
absl::StatusOr<int64_t> WriteRecord(FileSystem& file_system,
                                    const std::string& path, int64_t offset,
                                    const SaveHeader& header,
                                    const SaveView& view);

// Reads the outline of the local checkpoint at `path`. Errors as ReadSave;
// DATA_LOSS also if the file has the wrong length.
absl::StatusOr<SaveOutline> ReadSaveOutline(FileSystem& file_system,
                                            const std::string& path);

// Reads the local checkpoint at `path`. NOT_FOUND: none. DATA_LOSS: damaged, or
// another format; the message says how. Others: the file system's.
absl::StatusOr<Save> ReadSave(FileSystem& file_system, const std::string& path,
                              uint32_t parts = kAllParts);

// A record in a file.
struct RecordPlace {
  int64_t offset = 0;  // Bytes.
  SaveOutline outline;
};

// The records at `path` that follow the whole save `base`, in order, up to the
// first that is not whole. Their sections are not checked.
std::vector<RecordPlace> FindRecords(FileSystem& file_system,
                                     const std::string& path,
                                     const std::string& base);

// Reads the record at byte `offset` of `path`. Errors as ReadSave.
absl::StatusOr<Save> ReadRecord(FileSystem& file_system,
                                const std::string& path, int64_t offset,
                                uint32_t parts = kAllParts);

}  // namespace atl::worker
