#include "worker/core/planner/preset.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace atl::worker::planner {
namespace {

using codec::CodecId;

Exchange MakeExchange(int64_t inner_step_count, int64_t overlap_step_count,
                      bool streaming, CodecId up, CodecId down) {
  Exchange exchange;
  exchange.inner_step_count = inner_step_count;
  exchange.overlap_step_count = overlap_step_count;
  exchange.streaming = streaming;
  exchange.up_codec = up;
  exchange.down_codec = down;
  return exchange;
}

Preset Diloco() {
  Preset preset;
  preset.name = "diloco";
  preset.what = "all at once, every 500 steps, f32";
  preset.exchange = MakeExchange(500, 0, false, CodecId::kF32, CodecId::kF32);
  return preset;
}

Preset Streaming() {
  Preset preset;
  preset.name = "streaming";
  preset.what = "3 layers at a time, behind 5 steps, 4 bits";
  preset.exchange = MakeExchange(100, 5, true, CodecId::kE3m0, CodecId::kE3m0);
  preset.layers_a_fragment = 3;
  return preset;
}

Preset Decoupled() {
  Preset preset;
  preset.name = "decoupled";
  preset.what = "24 fragments, every 24 steps, a quorum is enough";
  preset.price = "stragglers weigh less";
  preset.exchange = MakeExchange(24, 2, true, CodecId::kInt8, CodecId::kBf16);
  preset.exchange.awaits_slowest = false;
  preset.exchange.merge_pass_count = 2;  // RDA.
  preset.fragment_count = 24;
  return preset;
}

Preset Sparseloco() {
  Preset preset;
  preset.name = "sparseloco";
  preset.what = "64 of 4096 elements, every 30 steps, 2 bits";
  preset.price = "needs some hundreds of rounds";
  preset.exchange =
      MakeExchange(30, 0, false, CodecId::kTopK, CodecId::kTwoBit);
  return preset;
}

Preset Eager() {
  Preset preset;
  preset.name = "eager";
  preset.what = "as streaming, behind a whole round";
  preset.price = "a little loss (2.52 against 2.50 at 1B)";
  preset.exchange = MakeExchange(100, 99, true, CodecId::kE3m0, CodecId::kE3m0);
  preset.layers_a_fragment = 3;
  return preset;
}

Preset Async() {
  Preset preset;
  preset.name = "async";
  preset.what = "no rounds: each island when it is done, 50 steps";
  preset.price = "stale contributions";
  preset.exchange = MakeExchange(50, 0, false, CodecId::kInt8, CodecId::kBf16);
  preset.exchange.is_synchronous = false;
  preset.exchange.awaits_slowest = false;
  return preset;
}

Preset Federated(absl::string_view name, absl::string_view what) {
  Preset preset;
  preset.name = name;
  preset.what = what;
  preset.exchange = MakeExchange(10, 0, false, CodecId::kF32, CodecId::kF32);
  preset.exchange.sample_fraction = 0.5;
  preset.is_for_local_data = true;
  return preset;
}

}  // namespace

absl::Span<const Preset> Presets() {
  static const Preset kPresets[] = {
      Diloco(),
      Streaming(),
      Decoupled(),
      Sparseloco(),
      Eager(),
      Async(),
      Federated("fedopt", "half of the clients a round, 10 steps, FedAdam"),
      Federated("fedavg", "half of the clients a round, 10 steps, their mean"),
  };
  return kPresets;
}

int64_t FragmentCountOf(const Preset& preset, int64_t layer_count) {
  int64_t count = 1;
  if (preset.fragment_count > 0) {
    count = preset.fragment_count;
  } else if (preset.layers_a_fragment > 0) {
    count =
        (layer_count + preset.layers_a_fragment - 1) / preset.layers_a_fragment;
  }
  return std::clamp<int64_t>(count, 1, layer_count);
}

std::vector<int64_t> EvenFragments(int64_t element_count,
                                   int64_t fragment_count) {
  const int64_t count = std::min(element_count, fragment_count);
  std::vector<int64_t> fragments(count, element_count / count);
  for (int64_t f = 0; f < element_count % count; ++f) ++fragments[f];
  return fragments;
}

Choice Choose(absl::Span<const Candidate> candidates, double target,
              bool data_is_local,
              const std::function<bool(const Preset&)>& may_take) {
  Choice choice;
  for (const Preset& preset : Presets()) {
    if (preset.is_for_local_data != data_is_local || !may_take(preset)) {
      continue;
    }
    for (const Candidate& candidate : candidates) {
      if (candidate.preset->name != preset.name) continue;
      if (candidate.forecast.utilization >= target) {
        return {&candidate,
                absl::StrFormat("it computes %.1f %% of the time and changes "
                                "least about training; %s",
                                100 * candidate.forecast.utilization,
                                candidate.forecast.why)};
      }
      if (choice.candidate == nullptr ||
          candidate.forecast.utilization >
              choice.candidate->forecast.utilization) {
        choice.candidate = &candidate;
      }
    }
  }
  if (choice.candidate != nullptr) {
    choice.why = absl::StrFormat(
        "none computes %.0f %% of the time; it comes nearest, with %.1f %%: %s",
        100 * target, 100 * choice.candidate->forecast.utilization,
        choice.candidate->forecast.why);
  }
  return choice;
}

}  // namespace atl::worker::planner
