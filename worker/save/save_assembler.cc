#include "worker/save/save_assembler.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

// Neighbours in a common numbering, and where they begin in some array.
struct Place {
  IndexRange at;
  int64_t offset = 0;
};

std::vector<Place> PlacesOfModel(const HeldLayout& held) {
  std::vector<Place> places;
  int64_t offset = 0;
  for (const IndexRange span : held.spans()) {
    places.push_back({span, offset});
    offset += span.size();
  }
  return places;
}

// In the order of the model, which is also that of a fragment's elements.
std::vector<Place> PlacesOfFragment(const HeldLayout& held, int32_t fragment) {
  std::vector<Place> places;
  for (const HeldPiece& piece : held.pieces(fragment)) {
    const int64_t begin =
        held.layout().tensors()[piece.tensor].model_offset +
        piece.tensor_offset;
    places.push_back(
        {{begin, begin + piece.element_count}, piece.fragment_offset});
  }
  return places;
}

// Calls `use(range, from, to)` for what both have: from and to are its places
// in their arrays.
template <typename Use>
void ForEachShared(const std::vector<Place>& from, const std::vector<Place>& to,
                   const Use& use) {
  for (size_t i = 0, j = 0; i < from.size() && j < to.size();) {
    const IndexRange a = from[i].at, b = to[j].at;
    const IndexRange both = {std::max(a.begin, b.begin),
                             std::min(a.end, b.end)};
    if (!both.empty()) {
      use(both, from[i].offset + both.begin - a.begin,
          to[j].offset + both.begin - b.begin);
    }
    ++(a.end < b.end ? i : j);
  }
}

absl::Status OfAnother(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("it is of another ", what));
}

// Brings what `to` wants of `from` there. `from` has as many elements as its
// places, or none if files have no such array; `present` says what the files
// before had.
absl::Status CopyShared(std::vector<float>& from, int64_t from_count,
                        const std::vector<Place>& from_places,
                        std::vector<float>& to, int64_t to_count,
                        const std::vector<Place>& to_places,
                        std::optional<bool>& present) {
  if (!from.empty() && static_cast<int64_t>(from.size()) != from_count) {
    return OfAnother("layout");
  }
  if (from_count == 0) return absl::OkStatus();
  const bool has = !from.empty();
  if (present.has_value() && *present != has) {
    return OfAnother("save than the files of other processes");
  }
  present = has;
  if (!has) return absl::OkStatus();
  to.resize(to_count);
  ForEachShared(from_places, to_places,
                [&](IndexRange both, int64_t in_from, int64_t in_to) {
                  std::copy_n(from.begin() + in_from, both.size(),
                              to.begin() + in_to);
                });
  return absl::OkStatus();
}

}  // namespace

SaveAssembler::SaveAssembler(const HeldLayout& held, const codec::Codec& codec,
                             const SaveOutline& outline)
    : held_(held), codec_(codec), after_(outline.feedback.size()) {
  save_.header = outline.header;
  save_.header.held.reset();
  if (!held.is_all()) save_.header.held = held.spans();
  for (const v1::ContributionInfo& info : outline.contributions) {
    save_.contributions.push_back({info, {}});
  }
  for (const v1::ContributionKey& key : outline.feedback) {
    save_.feedback.push_back({key, {}, {}});
  }
}

absl::Status SaveAssembler::Cover(const HeldLayout& source) {
  std::vector<IndexRange> all = covered_;
  all.insert(all.end(), source.spans().begin(), source.spans().end());
  std::sort(all.begin(), all.end(), [](IndexRange a, IndexRange b) {
    return a.begin < b.begin;
  });
  covered_.clear();
  for (const IndexRange span : all) {
    if (!covered_.empty() && span.begin < covered_.back().end) {
      return absl::DataLossError(absl::StrCat(
          "it has element ", span.begin, ", which another file has, too"));
    }
    if (!covered_.empty() && span.begin == covered_.back().end) {
      covered_.back().end = span.end;
    } else {
      covered_.push_back(span);
    }
  }
  return absl::OkStatus();
}

absl::Status SaveAssembler::Add(Save part) {
  const RunLayout& layout = held_.layout();
  const std::vector<IndexRange> all = {{0, layout.element_count()}};
  const absl::StatusOr<HeldLayout> created = HeldLayout::Create(
      layout, part.header.held.has_value() ? *part.header.held : all);
  if (!created.ok()) return OfAnother("layout");
  const HeldLayout& source = *created;
  RETURN_IF_ERROR(Cover(source));
  const std::vector<Place> from = PlacesOfModel(source);
  const std::vector<Place> to = PlacesOfModel(held_);
  SaveArrays<std::vector<float>>& theirs = part.arrays;
  SaveArrays<std::vector<float>>& ours = save_.arrays;
  std::vector<float>* const pairs[][2] = {
      {&theirs.first_moment, &ours.first_moment},
      {&theirs.second_moment, &ours.second_moment},
      {&theirs.local, &ours.local},
      {&theirs.eager_momentum, &ours.eager_momentum},
      {&theirs.eager_foreseen, &ours.eager_foreseen}};
  arrays_.resize(std::size(pairs));
  for (size_t i = 0; i < std::size(pairs); ++i) {
    RETURN_IF_ERROR(CopyShared(*pairs[i][0], source.element_count(), from,
                               *pairs[i][1], held_.element_count(), to,
                               arrays_[i]));
    *pairs[i][0] = {};  // Its memory is free.
  }
  RETURN_IF_ERROR(AddContributions(source, part));
  return AddFeedback(source, part);
}

absl::Status SaveAssembler::AddContributions(const HeldLayout& source,
                                             Save& part) {
  const RunLayout& layout = held_.layout();
  if (part.contributions.size() != save_.contributions.size()) {
    return OfAnother("save than the files of other processes");
  }
  for (size_t i = 0; i < part.contributions.size(); ++i) {
    const EncodedContribution& theirs = part.contributions[i];
    EncodedContribution& ours = save_.contributions[i];
    const int32_t f = theirs.info.key().fragment();
    if (theirs.info.SerializeAsString() != ours.info.SerializeAsString()) {
      return OfAnother("save than the files of other processes");
    }
    if (f < 0 || f >= layout.fragment_count() ||
        theirs.info.codec() != ProtoOf(codec_)) {
      return OfAnother("layout");
    }
    const EncodedLayout from(layout, f, codec_, source.fragment_blocks(f));
    const EncodedLayout to(layout, f, codec_, held_.fragment_blocks(f));
    if (static_cast<int64_t>(theirs.bytes.size()) != from.byte_count()) {
      return OfAnother("layout");
    }
    ours.bytes.resize(to.byte_count());
    const auto places = [](const EncodedLayout& encoded) {
      std::vector<Place> places;
      for (const IndexRange blocks : encoded.held()) places.push_back({blocks});
      return places;
    };
    ForEachShared(places(from), places(to),
                  [&](IndexRange blocks, int64_t, int64_t) {
                    std::memcpy(
                        ours.bytes.data() + to.ByteOffset(blocks.begin),
                        theirs.bytes.data() + from.ByteOffset(blocks.begin),
                        static_cast<size_t>(from.ByteCount(blocks)));
                  });
  }
  return absl::OkStatus();
}

absl::Status SaveAssembler::AddFeedback(const HeldLayout& source, Save& part) {
  if (part.feedback.size() != save_.feedback.size()) {
    return OfAnother("save than the files of other processes");
  }
  for (size_t i = 0; i < part.feedback.size(); ++i) {
    SavedFeedback& theirs = part.feedback[i];
    SavedFeedback& ours = save_.feedback[i];
    const int32_t f = theirs.key.fragment();
    if (theirs.key.SerializeAsString() != ours.key.SerializeAsString()) {
      return OfAnother("save than the files of other processes");
    }
    if (f < 0 || f >= held_.layout().fragment_count()) {
      return OfAnother("layout");
    }
    const int64_t count = source.fragment_element_count(f);
    const int64_t wanted = held_.fragment_element_count(f);
    if (static_cast<int64_t>(theirs.before.size()) != count) {
      return OfAnother("layout");
    }
    const std::vector<Place> from = PlacesOfFragment(source, f);
    const std::vector<Place> to = PlacesOfFragment(held_, f);
    Presence always;
    RETURN_IF_ERROR(CopyShared(theirs.before, count, from, ours.before, wanted,
                               to, always));
    RETURN_IF_ERROR(CopyShared(theirs.after, count, from, ours.after, wanted,
                               to, after_[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Save> SaveAssembler::Finish() {
  std::vector<std::string> missing;
  for (const IndexRange span : held_.spans()) {
    int64_t at = span.begin;
    for (const IndexRange covered : covered_) {
      if (covered.end <= at || covered.begin >= span.end) continue;
      if (covered.begin > at) {
        missing.push_back(absl::StrCat("[", at, ", ", covered.begin, ")"));
      }
      at = std::max(at, covered.end);
    }
    if (at < span.end) {
      missing.push_back(absl::StrCat("[", at, ", ", span.end, ")"));
    }
  }
  if (!missing.empty()) {
    return absl::DataLossError(absl::StrCat(
        "no file has the elements ", absl::StrJoin(missing, ", ")));
  }
  return std::move(save_);
}

}  // namespace atl::worker
