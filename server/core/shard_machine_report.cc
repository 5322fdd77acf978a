// A shard's report to the coordinator.

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/core/shard_machine.h"

namespace atl::server {
namespace {

// If more changes wait for a report, it is whole.
constexpr size_t kChangesMax = 1 << 17;

void AddStored(const StoredFact& fact, v1::ShardReport& report) {
  v1::StoredContribution& stored = *report.add_stored();
  *stored.mutable_info() = fact.info;
  stored.set_norm_squared(fact.norm_squared);
}

void AddRefused(const ContributionKey& key, const RefusedFact& fact,
                v1::ShardReport& report) {
  v1::RefusedContribution& refused = *report.add_refused();
  *refused.mutable_key() = key.ToProto();
  refused.set_reason(fact.reason);
  if (fact.anchor_version.has_value()) {
    refused.set_anchor_version(*fact.anchor_version);
  }
}

}  // namespace

void ShardMachine::NoteChanged(const ContributionKey& key) {
  if (base_report_seq_ == 0) return;
  changed_.insert(key);
  if (changed_.size() > kChangesMax) ReportWhole();
}

v1::ShardReport ShardMachine::Report() const {
  v1::ShardReport report = ReportState();
  for (const auto& [key, fact] : stored_) {
    if (!decided_.count(key)) AddStored(fact, report);
  }
  for (const auto& [key, fact] : refused_) {
    if (!decided_.count(key)) AddRefused(key, fact, report);
  }
  return report;
}

v1::ShardReport ShardMachine::Report(int64_t report_seq, bool takes_changes) {
  const bool is_whole = base_report_seq_ == 0 || !takes_changes;
  v1::ShardReport report = is_whole ? Report() : ReportState();
  if (!is_whole) {
    report.set_base_report_seq(base_report_seq_);
    for (const ContributionKey& key : changed_) {
      if (!IsReported(key)) {
        *report.add_gone() = key.ToProto();
        continue;
      }
      const auto stored = stored_.find(key);
      if (stored != stored_.end()) AddStored(stored->second, report);
      const auto refused = refused_.find(key);
      if (refused != refused_.end()) AddRefused(key, refused->second, report);
    }
  }
  base_report_seq_ = report_seq;
  changed_.clear();
  return report;
}

v1::ShardReport ShardMachine::ReportState() const {
  v1::ShardReport report;
  report.set_run_id(shape_.run_id);
  report.set_run_uid(run_uid_);
  report.set_run_epoch(std::max(run_epoch_, failed_run_epoch_));
  report.set_shard(shape_.shard);
  report.set_initialized(AllInitialized());
  if (AllInitialized()) {
    for (const Fragment& fragment : fragments_) {
      *report.add_version0_digests() = fragment.version0_digest.ToProto();
    }
    if (std::all_of(fragments_.begin(), fragments_.end(), [](const auto& f) {
          return f.version0_norm_squared.has_value();
        })) {
      for (const Fragment& fragment : fragments_) {
        report.add_version0_norms_squared(*fragment.version0_norm_squared);
      }
    }
  }
  report.set_persisted_commit_seq(persisted_commit_seq_);
  for (const Fragment& fragment : fragments_) {
    if (!fragment.prepared) continue;
    v1::PreparedRound* prepared = report.add_prepared();
    prepared->set_fragment(fragment.prepared->fragment);
    prepared->set_version(fragment.prepared->version);
    prepared->set_attempt(fragment.prepared->attempt);
    *prepared->mutable_digest() = fragment.prepared->digest.ToProto();
    prepared->set_finite(fragment.prepared->finite);
    prepared->set_norm_squared(fragment.prepared->norm_squared);
  }
  checkpoints_.Report(&report);
  for (v1::ShardCheckpoint& checkpoint : *report.mutable_checkpoints()) {
    mirror_.AddTo(checkpoint);
  }
  for (const v1::Pin& pin : plan_.pins()) {
    const std::string why = WhyGivenUp(pin);
    if (why.empty()) continue;
    v1::ShardCheckpoint* given_up = report.add_checkpoints();
    given_up->set_pin_id(pin.pin_id());
    given_up->set_commit_seq(pin.commit_seq());
    given_up->set_fault(
        absl::StrCat("its contributions are no longer kept here: ", why));
  }
  for (const Fragment& fragment : fragments_) {
    if (!fragment.measured) continue;
    v1::RoundStatistics* statistics = report.add_statistics();
    statistics->set_fragment(fragment.measured->fragment);
    statistics->set_version(fragment.measured->version);
    statistics->set_attempt(fragment.measured->attempt);
    for (const std::string& gram : fragment.measured->grams) {
      statistics->add_grams(gram);
    }
  }
  auto held_for_pins = static_cast<int64_t>(kept_commits_.size());
  for (const auto& [f, version] : held_) {
    held_for_pins += version < fragments_[f].persisted_version - 1 ? 1 : 0;
  }
  report.set_held_for_pins(held_for_pins);
  if (has_stopped()) {
    report.set_fault(fault());
    *report.mutable_fault_detail() = fault_.has_value() ? *fault_ : *plan_fault_;
  }
  return report;
}

}  // namespace atl::server
