#include "worker/save/save_set.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/save/save_assembler.h"

namespace atl::worker {
namespace {

constexpr char kEnding[] = ".save";
constexpr char kNextEnding[] = ".save.next";
constexpr char kRecordsEnding[] = ".records";

std::string MakeFileName(const SavePlace& place, int process_index,
                         int process_count, absl::string_view ending) {
  std::string name = absl::StrCat(place.run_id, ".", place.island_id);
  if (process_count > 1) {
    absl::StrAppend(&name, ".", process_index, "-of-", process_count);
  }
  return absl::StrCat(name, ending);
}

// The writer of a file; nullopt if it is none of the island's.
struct Owner {
  int process_index = 0;
  int process_count = 1;
  absl::string_view ending;
};
std::optional<Owner> ParseOwner(const SavePlace& place,
                                absl::string_view name) {
  for (const absl::string_view ending :
       {kEnding, kNextEnding, kRecordsEnding}) {
    Owner owner;
    owner.ending = ending;
    absl::string_view rest = name;
    if (!absl::ConsumeSuffix(&rest, ending) ||
        !absl::ConsumePrefix(
            &rest, absl::StrCat(place.run_id, ".", place.island_id))) {
      continue;
    }
    if (absl::ConsumePrefix(&rest, ".")) {
      const std::pair<absl::string_view, absl::string_view> numbers =
          absl::StrSplit(rest, absl::MaxSplits("-of-", 1));
      if (!absl::SimpleAtoi(numbers.first, &owner.process_index) ||
          !absl::SimpleAtoi(numbers.second, &owner.process_count) ||
          owner.process_index < 0 ||
          owner.process_index >= owner.process_count) {
        continue;
      }
    }
    // Rejects other spellings of the numbers and trailing text.
    if (MakeFileName(place, owner.process_index, owner.process_count, ending) ==
        name) {
      return owner;
    }
  }
  return std::nullopt;
}

// Sorted by name.
absl::StatusOr<std::vector<std::string>> ListOwn(FileSystem& file_system,
                                                 const SavePlace& place) {
  auto names = file_system.List(place.directory);
  if (absl::IsNotFound(names.status())) return std::vector<std::string>();
  if (names.ok()) absl::c_sort(*names);
  return names;
}

// True if `wanted` has one of `held` (nullopt: all).
bool HasSome(const std::optional<std::vector<IndexRange>>& held,
             const HeldLayout& wanted) {
  if (!held.has_value()) return wanted.element_count() > 0;
  return absl::c_any_of(*held, [&](IndexRange a) {
    return absl::c_any_of(wanted.spans(), [&](IndexRange b) {
      return a.begin < b.end && b.begin < a.end;
    });
  });
}

bool IsSame(const std::optional<std::vector<IndexRange>>& held,
            const HeldLayout& wanted) {
  return held.has_value() ? *held == wanted.spans() : wanted.is_all();
}

// The file with exactly `held`, otherwise all files with some of it.
std::vector<const SaveSet::File*> FilesFor(const SaveSet& set,
                                           const HeldLayout& held) {
  const auto own = absl::c_find_if(set.files, [&](const SaveSet::File& file) {
    return IsSame(file.held, held);
  });
  if (own != set.files.end()) return {&*own};
  std::vector<const SaveSet::File*> files;
  for (const SaveSet::File& file : set.files) {
    if (HasSome(file.held, held)) files.push_back(&file);
  }
  return files;
}

absl::Status AddTo(Coverage& coverage, const RunLayout& layout,
                   const std::optional<std::vector<IndexRange>>& held) {
  const absl::StatusOr<HeldLayout> source =
      held.has_value() ? HeldLayout::Create(layout, *held)
                       : absl::StatusOr<HeldLayout>(HeldLayout(layout));
  if (!source.ok()) return absl::DataLossError("it belongs to another layout");
  return coverage.Add(source->spans());
}

// Returns the first undamaged copy; without one, the first error.
absl::StatusOr<Save> ReadCopy(FileSystem& file_system,
                              const SaveSet::File& file, uint32_t parts) {
  absl::Status first;
  for (const std::string& path : file.paths) {
    absl::StatusOr<Save> save = ReadSave(file_system, path, parts);
    if (save.ok()) return save;
    first.Update(Annotate(save.status(), path));
  }
  return first;
}

// The missing files of other processes; empty if none is missing.
std::string MissingFiles(const SavePlace& place, const SaveSet& set) {
  std::vector<std::string> missing;
  for (int i = 0; i < set.process_count; ++i) {
    if (absl::c_any_of(set.files, [i](const SaveSet::File& file) {
          return file.process_index == i;
        })) {
      continue;
    }
    missing.push_back(MakeFileName(place, i, set.process_count, kEnding));
    if (missing.size() == 4) {
      missing.push_back("more");
      break;
    }
  }
  return absl::StrJoin(missing, ", ");
}

// Finds the records that all files of `set` have.
void AddRecords(FileSystem& file_system, const SavePlace& place, SaveSet& set) {
  const std::string& base = set.outline.header.name;
  if (base.empty()) return;
  bool is_first = true;
  for (SaveSet::File& file : set.files) {
    std::vector<RecordPlace> records = FindRecords(
        file_system, RecordsPath(place, file.process_index, set.process_count),
        base);
    for (const RecordPlace& record : records) {
      file.record_offsets.push_back(record.offset);
      if (is_first) set.records.push_back(record.outline);
    }
    set.records.resize(std::min(set.records.size(), records.size()));
    is_first = false;
  }
}

}  // namespace

std::string SavePath(const SavePlace& place, int process_index,
                     int process_count, bool is_next) {
  return absl::StrCat(place.directory, "/",
                      MakeFileName(place, process_index, process_count,
                                   is_next ? kNextEnding : kEnding));
}

std::string RecordsPath(const SavePlace& place, int process_index,
                        int process_count) {
  return absl::StrCat(
      place.directory, "/",
      MakeFileName(place, process_index, process_count, kRecordsEnding));
}

FoundSaves FindSaves(FileSystem& file_system, const SavePlace& place) {
  FoundSaves found;
  const auto names = ListOwn(file_system, place);
  if (!names.ok()) {
    found.notes.push_back(
        absl::StrCat(place.directory, ": ", names.status().message()));
    return found;
  }
  for (const std::string& name : *names) {
    const std::optional<Owner> owner = ParseOwner(place, name);
    if (!owner.has_value() || owner->ending == kRecordsEnding) continue;
    const std::string path = absl::StrCat(place.directory, "/", name);
    absl::StatusOr<SaveOutline> outline = ReadSaveOutline(file_system, path);
    if (!outline.ok()) {
      found.notes.push_back(
          absl::StrCat(path, ": ", outline.status().message()));
      continue;
    }
    SaveSet::File file = {.process_index = owner->process_index,
                          .paths = {path},
                          .held = outline->header.held};
    const std::string set_name =
        absl::StrCat(NameOfSave(*outline), "-of-", owner->process_count);
    auto set = absl::c_find_if(found.sets, [&](const SaveSet& of) {
      return of.name == set_name;
    });
    if (set == found.sets.end()) {
      found.sets.push_back({.name = set_name,
                            .process_count = owner->process_count,
                            .outline = *std::move(outline)});
      set = std::prev(found.sets.end());
    }
    const auto other =
        absl::c_find_if(set->files, [&](const SaveSet::File& of) {
          return of.process_index == file.process_index;
        });
    if (other == set->files.end()) {
      set->files.push_back(std::move(file));
    } else if (other->held == file.held) {
      other->paths.push_back(path);
    } else {
      found.notes.push_back(absl::StrCat(
          path, ": it has other elements than ", other->paths.front(),
          ", another file of the same process"));
    }
  }
  for (SaveSet& set : found.sets) AddRecords(file_system, place, set);
  // Contribution numbers and epochs of the run never decrease.
  absl::c_stable_sort(found.sets, [](const SaveSet& a, const SaveSet& b) {
    const auto age = [](const SaveSet& set) {
      const SaveSummary& summary = set.outline.header.summary;
      return std::tuple(summary.run_epoch, summary.seq,
                        set.outline.header.step);
    };
    return age(a) > age(b);
  });
  return found;
}

absl::Status CheckSaveSet(const SavePlace& place, const SaveSet& set,
                          const HeldLayout& held) {
  Coverage coverage;
  for (const SaveSet::File* file : FilesFor(set, held)) {
    RETURN_IF_ERROR(Annotate(AddTo(coverage, held.layout(), file->held),
                             file->paths.front()));
  }
  const absl::Status status = coverage.Check(held);
  const std::string missing = MissingFiles(place, set);
  if (status.ok() || missing.empty()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(
          status.message(), "; ", place.directory,
          " lacks files of this local checkpoint of ", set.process_count,
          " processes: ", missing,
          " (after a change of their number, put the files of all into "
          "one --work-dir)"));
}

absl::StatusOr<Save> ReadSaveSet(FileSystem& file_system,
                                 const SavePlace& place, const SaveSet& set,
                                 const HeldLayout& held,
                                 const codec::Codec& codec, uint32_t parts) {
  RETURN_IF_ERROR(CheckSaveSet(place, set, held));
  SaveAssembler assembler(held, codec, set.outline, parts);
  for (const SaveSet::File* file : FilesFor(set, held)) {
    ASSIGN_OR_RETURN(Save part, ReadCopy(file_system, *file, parts));
    RETURN_IF_ERROR(
        Annotate(assembler.Add(std::move(part)), file->paths.front()));
  }
  return assembler.Finish();
}

absl::StatusOr<Save> ReadRecordOfSet(FileSystem& file_system,
                                     const SavePlace& place, const SaveSet& set,
                                     size_t index, const HeldLayout& held,
                                     const codec::Codec& codec,
                                     uint32_t parts) {
  SaveAssembler assembler(held, codec, set.records[index], parts);
  for (const SaveSet::File* file : FilesFor(set, held)) {
    const std::string path =
        RecordsPath(place, file->process_index, set.process_count);
    absl::StatusOr<Save> part =
        ReadRecord(file_system, path, file->record_offsets[index], parts);
    RETURN_IF_ERROR(Annotate(part.status(), path));
    RETURN_IF_ERROR(Annotate(assembler.Add(*std::move(part)), path));
  }
  return assembler.Finish();
}

void RemoveOtherSaves(FileSystem& file_system, const SavePlace& place,
                      int process_count) {
  const auto names = ListOwn(file_system, place);
  if (!names.ok()) return;
  bool removed = false;
  for (const std::string& name : *names) {
    const std::optional<Owner> owner = ParseOwner(place, name);
    if (!owner.has_value() || owner->process_count == process_count) continue;
    // Another process may have removed it.
    file_system.Remove(absl::StrCat(place.directory, "/", name)).IgnoreError();
    removed = true;
  }
  if (removed) file_system.SyncDirectory(place.directory).IgnoreError();
}

}  // namespace atl::worker
