#include "server/merge/sealed_set.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/block_grid.h"
#include "base/status/status_macros.h"
#include "server/merge/add_blocks.h"

namespace atl::server {

absl::StatusOr<SealedSet> SealedSet::Open(RunStore& store,
                                          const MergeRule& rule,
                                          const v1::Seal& seal) {
  std::vector<std::shared_ptr<const EncodedSource>> contributions;
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    const auto key = ContributionKey::FromProto(sealed.key());
    std::shared_ptr<Contribution> contribution =
        store.contributions().Find(key);
    if (contribution == nullptr ||
        contribution->state() != Contribution::State::kStored) {
      return absl::FailedPreconditionError(
          absl::StrCat(key.ToString(), " is not stored here"));
    }
    contributions.push_back(std::move(contribution));
  }
  return Of(store.range(seal.fragment()), store.run().spec(), rule, seal,
            std::move(contributions));
}

absl::StatusOr<SealedSet> SealedSet::Of(
    const ShardRange& range, const v1::RunSpec& spec, const MergeRule& rule,
    const v1::Seal& seal,
    std::vector<std::shared_ptr<const EncodedSource>> contributions) {
  SealedSet set(range, rule, seal,
                MergeGroups(range.layout(), spec, seal.fragment()),
                FindNeeds(spec.outer().merge()));
  set.contributions_ = std::move(contributions);
  if (!seal.has_verdict()) return set;
  if (seal.verdict().rows_size() != set.groups_.count()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the verdict has ", seal.verdict().rows_size(),
                     " rows of coefficients, not ", set.groups_.count()));
  }
  for (const v1::CoefficientRow& row : seal.verdict().rows()) {
    if (row.coefficients_size() != seal.contributions_size()) {
      return absl::FailedPreconditionError(
          "a row of the verdict does not fit the sealed contributions");
    }
  }
  return set;
}

int SealedSet::FindGroup(int64_t block) const {
  return groups_.FindGroup(
      range_.layout().BlockTensor(range_.fragment(), block).tensor);
}

float SealedSet::Factor(int i, int group) const {
  return group == MergeGroups::kNone || !seal_.has_verdict()
             ? seal_.contributions(i).weight()
             : seal_.verdict().rows(group).coefficients(i);
}

absl::Status SealedSet::MergeSum(IndexRange blocks, std::vector<float>& buffer,
                                 float* gradient) const {
  const int64_t count = range_.ElementCount(blocks);
  // No encoding is larger than f32.
  if (buffer.size() < count) buffer.resize(count);
  char* const bytes = reinterpret_cast<char*>(buffer.data());
  const int64_t first = range_.ElementOffset(blocks.begin);
  for (int i = 0; i < seal_.contributions_size(); ++i) {
    const EncodedSource& contribution = *contributions_[i];
    const EncodedRange& encoded = contribution.encoded();
    RETURN_IF_ERROR(contribution.ReadEncoded(blocks, bytes));
    // Blocks of one group at a time; most tiles have one group.
    for (int64_t begin = blocks.begin; begin < blocks.end;) {
      const int group = FindGroup(begin);
      int64_t end = begin + 1;
      while (end < blocks.end && FindGroup(end) == group) ++end;
      RETURN_IF_ERROR(
          AddBlocks(rule_, encoded, {begin, end}, i, Factor(i, group),
                    bytes + encoded.ByteCount({blocks.begin, begin}),
                    gradient + (range_.ElementOffset(begin) - first)));
      begin = end;
    }
  }
  return absl::OkStatus();
}

absl::Status SealedSet::ReadRows(int64_t block, std::vector<float>& buffer,
                                 std::vector<float*>& rows) const {
  const size_t size = contributions_.size() * codec::kBlockElements;
  if (buffer.size() < size) buffer.resize(size);
  rows.clear();
  for (size_t i = 0; i < contributions_.size(); ++i) {
    rows.push_back(buffer.data() + i * codec::kBlockElements);
    RETURN_IF_ERROR(contributions_[i]->Read({block, block + 1}, rows.back()));
  }
  return absl::OkStatus();
}

absl::Status SealedSet::Merge(IndexRange blocks, std::vector<float>& buffer,
                              float* gradient) const {
  if (!rule_.takes_rows()) return MergeSum(blocks, buffer, gradient);
  const int64_t first = range_.ElementOffset(blocks.begin);
  std::vector<float*> rows;
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    RETURN_IF_ERROR(ReadRows(block, buffer, rows));
    rule_.MergeRows(range_.ElementCount({block, block + 1}),
                    static_cast<int>(rows.size()), rows.data(),
                    gradient + range_.ElementOffset(block) - first);
  }
  return absl::OkStatus();
}

GramSums SealedSet::NewSums() const {
  return GramSums(groups_.count(), seal_.contributions_size(),
                  /*diagonal_only=*/needs_ == MergeNeeds::kNorms);
}

absl::Status SealedSet::Measure(IndexRange blocks, std::vector<float>& buffer,
                                GramSums& sums) const {
  std::vector<float*> rows;
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const int group = FindGroup(block);
    if (group == MergeGroups::kNone) continue;
    RETURN_IF_ERROR(ReadRows(block, buffer, rows));
    sums.AddBlock(group, range_.ElementCount({block, block + 1}), rows.data());
  }
  return absl::OkStatus();
}

}  // namespace atl::server
