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

// A range in a common numbering, and its offset in an array.
struct Place {
  IndexRange at;
  int64_t offset = 0;

  friend bool operator==(const Place& a, const Place& b) {
    return a.at == b.at && a.offset == b.offset;
  }
};

// The elements of the model, or of a fragment, that an array has. Numbered as
// in the model, whose order is also that of a fragment.
struct Part {
  std::vector<Place> places;
  int64_t element_count = 0;
};

Part PartOfModel(const HeldLayout& held) {
  Part part;
  for (const IndexRange span : held.spans()) {
    part.places.push_back({span, part.element_count});
    part.element_count += span.size();
  }
  return part;
}

Part PartOfFragment(const HeldLayout& held, int32_t fragment) {
  Part part;
  for (const HeldPiece& piece : held.pieces(fragment)) {
    const int64_t begin =
        held.layout().tensors()[piece.tensor].model_offset +
        piece.tensor_offset;
    part.places.push_back(
        {{begin, begin + piece.element_count}, piece.fragment_offset});
  }
  part.element_count = held.fragment_element_count(fragment);
  return part;
}

// Calls `use(range, from, to)` for each common range, with its offsets.
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
  return absl::DataLossError(absl::StrCat("it belongs to another ", what));
}

// Moves the elements that `wanted` shares with `part` from `from` to `to`.
// `from` has all of `part`, or is empty if files lack this array; `present`
// says whether earlier files had it.
absl::Status TakeShared(const Part& part, std::vector<float>& from,
                        const Part& wanted, std::vector<float>& to,
                        std::optional<bool>& present) {
  std::vector<float> given = std::move(from);
  from = {};
  if (!given.empty() &&
      static_cast<int64_t>(given.size()) != part.element_count) {
    return OfAnother("layout");
  }
  if (part.element_count == 0) return absl::OkStatus();
  if (present.has_value() && *present == given.empty()) {
    return OfAnother("local checkpoint than other files");
  }
  present = !given.empty();
  if (given.empty()) return absl::OkStatus();
  if (part.places == wanted.places) {
    to = std::move(given);
    return absl::OkStatus();
  }
  to.resize(wanted.element_count);
  ForEachShared(part.places, wanted.places,
                [&](IndexRange both, int64_t in_from, int64_t in_to) {
                  std::copy_n(given.begin() + in_from, both.size(),
                              to.begin() + in_to);
                });
  return absl::OkStatus();
}

}  // namespace

absl::Status Coverage::Add(absl::Span<const IndexRange> spans) {
  std::vector<IndexRange> all = covered_;
  all.insert(all.end(), spans.begin(), spans.end());
  std::sort(all.begin(), all.end(), [](IndexRange a, IndexRange b) {
    return a.begin < b.begin;
  });
  covered_.clear();
  for (const IndexRange span : all) {
    if (!covered_.empty() && span.begin < covered_.back().end) {
      return absl::DataLossError(absl::StrCat(
          "it has element ", span.begin, ", which another file also has"));
    }
    if (!covered_.empty() && span.begin == covered_.back().end) {
      covered_.back().end = span.end;
    } else {
      covered_.push_back(span);
    }
  }
  return absl::OkStatus();
}

absl::Status Coverage::Check(const HeldLayout& held) const {
  std::vector<std::string> missing;
  for (const IndexRange span : held.spans()) {
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
  if (missing.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("no file has elements ",
                                          absl::StrJoin(missing, ", ")));
}

SaveAssembler::SaveAssembler(const HeldLayout& held, const codec::Codec& codec,
                             const SaveOutline& outline, uint32_t parts)
    : held_(held), codec_(codec), after_(outline.feedback.size()) {
  save_.header = outline.header;
  save_.header.held.reset();
  if (!held.is_all()) save_.header.held = held.spans();
  if ((parts & kContributions) != 0) {
    for (const v1::ContributionInfo& info : outline.contributions) {
      save_.contributions.push_back({info, {}});
    }
  }
  if ((parts & kFeedback) != 0) {
    for (const v1::ContributionKey& key : outline.feedback) {
      save_.feedback.push_back({key, {}, {}});
    }
  }
  if ((parts & kAnswers) == 0) return;
  for (const AppliedAnswer& answer : outline.answers) {
    save_.answers.push_back({answer, {}});
  }
  for (const int32_t fragment : outline.foreseen) {
    save_.foreseen.push_back({fragment, {}, {}});
  }
}

absl::Status SaveAssembler::Add(Save part) {
  const RunLayout& layout = held_.layout();
  const std::vector<IndexRange> all = {{0, layout.element_count()}};
  const absl::StatusOr<HeldLayout> created = HeldLayout::Create(
      layout, part.header.held.has_value() ? *part.header.held : all);
  if (!created.ok()) return OfAnother("layout");
  const HeldLayout& source = *created;
  RETURN_IF_ERROR(coverage_.Add(source.spans()));
  const Part given = PartOfModel(source), wanted = PartOfModel(held_);
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
    RETURN_IF_ERROR(TakeShared(given, *pairs[i][0], wanted, *pairs[i][1],
                               arrays_[i]));
  }
  RETURN_IF_ERROR(AddContributions(source, part));
  RETURN_IF_ERROR(AddFeedback(source, part));
  return AddAnswers(source, part);
}

absl::Status SaveAssembler::AddContributions(const HeldLayout& source,
                                             Save& part) {
  const RunLayout& layout = held_.layout();
  if (part.contributions.size() != save_.contributions.size()) {
    return OfAnother("local checkpoint than other files");
  }
  for (size_t i = 0; i < part.contributions.size(); ++i) {
    const EncodedContribution& theirs = part.contributions[i];
    EncodedContribution& ours = save_.contributions[i];
    const int32_t f = theirs.info.key().fragment();
    if (theirs.info.SerializeAsString() != ours.info.SerializeAsString()) {
      return OfAnother("local checkpoint than other files");
    }
    if (f < 0 || f >= layout.fragment_count() ||
        theirs.info.codec() != ToProto(codec_)) {
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
    return OfAnother("local checkpoint than other files");
  }
  for (size_t i = 0; i < part.feedback.size(); ++i) {
    SavedFeedback& theirs = part.feedback[i];
    SavedFeedback& ours = save_.feedback[i];
    const int32_t f = theirs.key.fragment();
    if (theirs.key.SerializeAsString() != ours.key.SerializeAsString()) {
      return OfAnother("local checkpoint than other files");
    }
    if (f < 0 || f >= held_.layout().fragment_count()) {
      return OfAnother("layout");
    }
    const Part given = PartOfFragment(source, f);
    const Part wanted = PartOfFragment(held_, f);
    Presence always = true;
    RETURN_IF_ERROR(
        TakeShared(given, theirs.before, wanted, ours.before, always));
    RETURN_IF_ERROR(
        TakeShared(given, theirs.after, wanted, ours.after, after_[i]));
  }
  return absl::OkStatus();
}

absl::Status SaveAssembler::AddAnswers(const HeldLayout& source, Save& part) {
  if (part.answers.size() != save_.answers.size() ||
      part.foreseen.size() != save_.foreseen.size()) {
    return OfAnother("local checkpoint than other files");
  }
  const auto take = [&](int32_t f, std::vector<float>& theirs,
                        std::vector<float>& ours) {
    if (f < 0 || f >= held_.layout().fragment_count()) {
      return OfAnother("layout");
    }
    Presence always = true;
    return TakeShared(PartOfFragment(source, f), theirs,
                      PartOfFragment(held_, f), ours, always);
  };
  for (size_t i = 0; i < part.answers.size(); ++i) {
    auto& theirs = part.answers[i];
    if (!(theirs.answer == save_.answers[i].answer)) {
      return OfAnother("local checkpoint than other files");
    }
    RETURN_IF_ERROR(
        take(theirs.answer.fragment, theirs.values, save_.answers[i].values));
  }
  for (size_t i = 0; i < part.foreseen.size(); ++i) {
    auto& theirs = part.foreseen[i];
    auto& ours = save_.foreseen[i];
    if (theirs.fragment != ours.fragment) {
      return OfAnother("local checkpoint than other files");
    }
    RETURN_IF_ERROR(take(theirs.fragment, theirs.foreseen, ours.foreseen));
    RETURN_IF_ERROR(take(theirs.fragment, theirs.momentum, ours.momentum));
  }
  return absl::OkStatus();
}

absl::StatusOr<Save> SaveAssembler::Finish() {
  RETURN_IF_ERROR(coverage_.Check(held_));
  return std::move(save_);
}

}  // namespace atl::worker
