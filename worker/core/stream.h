// A streaming run seen by one island: one clock of inner steps, and the
// position of each fragment on it.
//
// Pure: no thread, no I/O, no clock except inner steps. Thread-compatible.
//
// A fragment is pushed when the steps of its round since its previous push are
// done. Its answer is applied `overlap` steps later. A strict run waits for the
// answer at that step. An elastic run applies it on arrival and waits only
// after `max_ahead_steps` more. From push to apply the fragment is in flight;
// several can be. If overlap > 0, a contribution is encoded and saved while
// training continues, one at a time. worker/DESIGN.md, "Streaming", says why a
// restart gives the same bits.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "atoll/v1/island_service.pb.h"
#include "worker/core/action.h"
#include "worker/core/plan_view.h"

namespace atl::worker {

class Stream {
 public:
  // Data shard and its next window.
  using Position = std::pair<int32_t, int64_t>;

  // A contribution that is made and whose answer is not applied yet.
  struct Flight {
    int64_t seq = 0;
    int64_t anchor_version = 0;
    int64_t push_step = 0;
    int64_t step_count = 0;   // 0: not known.
    int64_t token_count = 0;
    bool saved = true;  // A contribution is pushed only once it is saved.
    bool pushed = false;
    bool refused = false;
  };

  bool begun() const { return !tracks_.empty(); }
  // Drops all local values. Their work that is not pushed is unpushed work; if
  // the run was restored, so is what has no outcome.
  void GiveUp(const PlanView& view, bool is_restored = false);
  // The work that ended without a push since the last call, and the work that
  // Restore() took back; without run_epoch.
  std::vector<v1::UnpushedWork> TakeUnpushed() {
    return std::exchange(unpushed_, {});
  }

  // True if some round expects this island at the cut.
  bool CanBegin(const PlanView& view) const;
  // Local parameters are the anchors of versions `held`. The clock starts at
  // the earliest round that expects this island. Returns where its data begins:
  // the further of `position` and the plan's. Requires: CanBegin().
  Position Begin(const PlanView& view, const std::vector<int64_t>& held,
                 std::optional<Position> position);

  // --- Decisions, by lane ---

  // `held` has the version of each anchor, -1 for none. Returns a wait with its
  // reason if there is nothing else to do.
  Action NextTraining(const PlanView& view, const std::vector<int64_t>& held,
                      const Position& position) const;
  std::optional<Action> NextPush(const PlanView& view) const;
  std::optional<Action> NextSave() const;
  // The fragment to pull next, of those not held at the cut's version: the one
  // whose answer is applied first, or -1. Not one in flight without an answer.
  int32_t NextPull(const PlanView& view,
                   const std::vector<int64_t>& held) const;

  // --- Results ---

  void OnTrained(int64_t step_count, int64_t token_count) {
    clock_ += step_count;
    for (Track& track : tracks_) track.token_count += token_count;
  }
  void OnContributed(const Action& action);
  void OnApplied(const PlanView& view, const Action& action,
                 const Position& position);
  void OnSaved(const Action& action);
  // The contribution that was taken cannot be encoded.
  void OnUnsavable(const Action& action);
  void OnPushed(const Action& action, bool refused);
  // Something changed the island that no record repeats.
  void OnReset() { records_left_ = 0; }

  // Call after any news. Returns true if a contribution was decided against and
  // its round opens again: the optimizer state that led to it must be dropped.
  bool Settle(const PlanView& view);
  // A shard may have lost what was pushed to it; `all`: any contribution.
  void Unprove(const PlanView& view, bool all);

  // --- The local checkpoint ---

  // Adds the clock and the tracks as they are after `contribute`.
  void AddTo(SaveSummary& save, const Action& contribute) const;
  // True if training can continue from `save`: each fragment is at its saved
  // version, or one version further with the contribution merged.
  static bool Fits(const PlanView& view, const SaveSummary& save);
  void Restore(const PlanView& view, const SaveSummary& save);
  // `save` does not fit: what it has in flight without an outcome is unpushed
  // work.
  void GiveUpSave(const PlanView& view, const SaveSummary& save);

  // True while a contribution is taken and not saved.
  bool Unsaved() const { return NextSave().has_value(); }
  // True while a contribution is made whose outcome is not known.
  bool InFlight(const PlanView& view) const;
  // True while a contribution is not pushed that the shards should have.
  bool Unpushed(const PlanView& view) const;

 private:
  struct Track {
    int64_t local_version = -1;  // Anchor of the local values; -1: dropped.
    int64_t since_step = 0;      // Clock at the previous push or the begin.
    int64_t data_begin = 0;      // First window after that.
    std::optional<Flight> flight;
    int64_t token_count = 0;  // Read since then.
  };
  struct Due {
    bool expected = true;  // False: the open round excludes this island.
    bool open = false;
    int64_t step = 0;  // Clock at which it is due.
    int64_t start_step = 0;  // Clock at the start of its round, if open.
    double weight = 1;
  };

  static Flight ToFlight(const SavedTrack& saved);
  // The steps since the previous push are in no contribution. `version`: of the
  // anchor, if the local values are dropped.
  void GiveUpSteps(int32_t f, int64_t version);
  // Nor is the contribution in flight.
  void NoteFlight(int32_t f, const Flight& flight);
  // The same, unless the shards have it.
  void GiveUpFlight(const PlanView& view, int32_t f,
                    bool is_restored = false);
  Due FindDue(const PlanView& view, int32_t f) const;
  int64_t ApplyStepMin(const PlanView& view, const Flight& flight) const;
  int64_t ApplyStepMax(const PlanView& view, const Flight& flight) const;
  bool PushWanted(const PlanView& view, int32_t f) const;
  std::optional<Action> NextContribution(const PlanView& view,
                                         const std::vector<int64_t>& held,
                                         const Position& position) const;
  std::optional<Action> NextApply(const PlanView& view,
                                  const std::vector<int64_t>& held) const;
  bool MayTrain(const PlanView& view) const;
  // Steps until a contribution or an answer may be due, at least 1.
  int64_t StepsToNextEvent(const PlanView& view) const;

  int64_t clock_ = 0;
  int64_t rate_offset_ = 0;  // Clock of the learning rate - clock.
  int64_t save_every_ = 1;   // Pushes from one whole save to the next.
  int64_t records_left_ = 0;  // Pushes until then that are saved as records.
  std::vector<Track> tracks_;
  std::vector<v1::UnpushedWork> unpushed_;
};

}  // namespace atl::worker
