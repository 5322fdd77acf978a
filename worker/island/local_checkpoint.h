// An island's local checkpoint on disk, for one of its processes: writes whole
// saves and the records that follow them, and finds the newest checkpoint that
// all processes have.
//
// All processes of the island must make a call marked "Collective", in the same
// order in each lane. Its error is the error of all. Thread-compatible: writes
// may come from another thread than reads, one call at a time.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/codec/codec.h"
#include "base/io/file_system.h"
#include "base/layout/held_layout.h"
#include "worker/core/action.h"
#include "worker/core/save_replay.h"
#include "worker/island/group/island_group.h"
#include "worker/save/save_file.h"
#include "worker/save/save_set.h"

namespace atl::worker {

class LocalCheckpoint {
 public:
  // `group` is null for one process. The arguments outlive this.
  LocalCheckpoint(FileSystem& files, SavePlace place, IslandGroup* group,
                  const HeldLayout& held, const codec::Codec& codec);

  // Collective. Replaces the local checkpoint by a whole save. After any crash
  // all processes have this one or the previous one. Returns the bytes that
  // this process wrote.
  absl::StatusOr<int64_t> WriteWhole(Lane lane, SaveHeader header,
                                     const SaveView& view);
  // Collective. Appends a record to the newest WriteWhole(). After an error the
  // same record can be written again. INTERNAL: no WriteWhole() came before, or
  // its header says that no records follow.
  absl::StatusOr<int64_t> WriteRecord(Lane lane, SaveHeader header,
                                      const SaveView& view);

  // Collective. Finds the newest local checkpoint that all processes can read,
  // of any process count; nullopt without one. If it finds one, the calls below
  // are allowed until Forget(). One of a lower run_epoch than `run_epoch` is not
  // found: the run was restored since. It stays until WriteWhole() replaces it.
  absl::StatusOr<std::optional<SaveSummary>> Find(int64_t run_epoch);
  bool found() const { return set_.has_value(); }
  void Forget() { set_.reset(); }

  // The header of the whole save.
  const SaveHeader& whole() const { return set_->outline.header; }
  // The steps, answers and pushes that follow the whole save.
  SaveReplay MakeReplay(int64_t batch_size) const;
  // DATA_LOSS: a file was damaged meanwhile.
  absl::StatusOr<Save> ReadWhole(uint32_t parts) const;
  absl::StatusOr<Save> ReadRecord(size_t index, uint32_t parts) const;
  // The contributions that may have to be pushed. DATA_LOSS: one is missing.
  absl::StatusOr<std::vector<EncodedContribution>> ReadContributions() const;

 private:
  absl::Status Agree(Lane lane, const absl::Status& status) const;
  absl::StatusOr<std::vector<std::string>> OfAllProcesses(
      const std::string& own);
  int process_index() const;
  int process_count() const;
  // Makes files durable: a killed process may not have synced them.
  absl::Status Sync(const SaveSet& set) const;
  // True if this process can read the whole save; keeps its sound records.
  bool CheckFiles(SaveSet& set) const;

  FileSystem& files_;
  const SavePlace place_;
  IslandGroup* const group_;
  const HeldLayout& held_;
  const codec::Codec& codec_;

  std::optional<SaveSet> set_;   // Found.
  bool others_removed_ = false;  // Saves of other process counts.
  std::string base_;             // Name of the newest whole save; empty: none.
  int64_t record_count_ = 0;     // Written after it,
  int64_t record_bytes_ = 0;     // and their bytes.
};

}  // namespace atl::worker
