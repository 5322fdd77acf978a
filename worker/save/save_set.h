// The SAVEs of an island in a directory: which there are, and what one process
// needs of one, whoever wrote it.
//
// An island of one process has RUN.ISLAND.save. Of N processes the I-th has
// RUN.ISLAND.I-of-N.save, and RUN.ISLAND.I-of-N.save.next until all have theirs
// (worker/island/group/DESIGN.md).
//
// A process needs the files that have what it holds. Its own alone where it
// holds what it held then; else those of others, too, so that all of them have
// to lie in this directory.
//
// Functions are thread-safe while nobody writes.

#ifndef WORKER_SAVE_SAVE_SET_H_
#define WORKER_SAVE_SAVE_SET_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/codec/codec.h"
#include "base/io/file_system.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "worker/save/save_file.h"

namespace atl::worker {

// Where the SAVEs of an island are.
struct SavePlace {
  std::string directory;
  std::string run_id;
  std::string island_id;
};

// The path of process `process_index` of `process_count`; with `is_next` that
// of the save that is not everywhere yet.
std::string SavePath(const SavePlace& place, int process_index,
                     int process_count, bool is_next = false);

// The files of one SAVE that are here.
struct SaveSet {
  std::string name;  // The same on all processes, and of no other save.
  int process_count = 1;
  SaveOutline outline;  // Of one of them: all say the same but for `held`.
  struct File {
    int process_index = 0;
    std::vector<std::string> paths;  // More than one: copies, by name.
    std::optional<std::vector<IndexRange>> held;
  };
  std::vector<File> files;  // Each process at most once.
};

struct FoundSaves {
  std::vector<SaveSet> sets;      // The newest first.
  std::vector<std::string> notes;  // What is not used, and why.
};
FoundSaves FindSaves(FileSystem& file_system, const SavePlace& place);

// Whether `set` has all that a process that has `held` needs, as far as its files
// say what they have: nothing in bulk is read.
//
// DATA_LOSS: it has not, or two files have the same elements, or one is of
// another layout; the message says which, and what to do.
absl::Status CheckSaveSet(const SavePlace& place, const SaveSet& set,
                          const HeldLayout& held);

// What a process that has `held` needs of `set`; checksums are looked at. Where
// a file is damaged a copy of it is read.
//
// DATA_LOSS: as CheckSaveSet, and then no file was read; or a file is damaged or
// does not fit the others.
absl::StatusOr<Save> ReadSaveSet(FileSystem& file_system,
                                 const SavePlace& place, const SaveSet& set,
                                 const HeldLayout& held,
                                 const codec::Codec& codec);

// Removes the SAVEs of other numbers of processes, which are older than that of
// `process_count`. Best effort.
void RemoveOtherSaves(FileSystem& file_system, const SavePlace& place,
                      int process_count);

}  // namespace atl::worker

#endif  // WORKER_SAVE_SAVE_SET_H_
