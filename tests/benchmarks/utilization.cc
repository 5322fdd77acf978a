// Simulated share of computing time against bandwidth for 1B, 10B and 100B
// parameters: data-parallel, DiLoCo and Streaming DiLoCo as in arXiv
// 2501.18512, compared with its published figures; and our methods with our
// codecs.
//
//     bazel run -c opt //tests/benchmarks:utilization -- --json
//     bazel run -c opt //tests/benchmarks:utilization -- --services FILE
//
// FILE has the speeds of our machines: a JSON object with the keys
//
//   merge_bytes_per_second   f32 bytes of contributions that a server merges
//   commit_seconds           a round's decisions
//   encode_bytes_per_second, decode_bytes_per_second
//                            f32 bytes of a host: a number, or one per codec
//                            ({"e3m0": 9e9, ...}; others: the default)
//
// as measured by the round and codec benchmarks. Our rows include round trips,
// the merge, and 6 % of the link for TCP/IP; the published rows include none of
// these. For every billion parameters an island has a host, and the model a
// server (--hosts-per-billion). They encode and merge in parallel.
//
// With --json each result is one JSON object a line, in this order:
//   {"case": "reduction", "model", "method", "utilization": [5 targets],
//    "gigabits_per_second": [5], "published_gigabits_per_second": [5]}
//   {"case": "servers", the same without published figures; null: no bandwidth
//    is enough}
//   {"case": "at_1_gigabit", "model": "1B", "method", "utilization", "planned",
//    "codec_blocks", "reaches_95"}

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/codec/codec.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tests/benchmarks/utilization_methods.h"
#include "tests/benchmarks/utilization_simulator.h"
#include "worker/planner/forecast.h"

namespace atl::benchmarks {
namespace {

using Json = nlohmann::ordered_json;
using worker::planner::Compute;
using worker::planner::Exchange;
using worker::planner::Link;
using worker::planner::Service;

constexpr double kGigabit = 1e9 / 8;  // Bytes.

struct Flags {
  bool json = false;
  std::string services;
  int islands = 2;  // As in the paper.
  double rtt_ms = 20;
  double payload_share = 0.94;
  double hosts_per_billion = 1;
};

// --- Inputs ------------------------------------------------------------------

class Services {
 public:
  // NOT_FOUND, INVALID_ARGUMENT: FILE cannot be read, or has another form.
  static absl::StatusOr<Services> Read(const std::string& path) {
    Services services;
    if (path.empty()) return services;
    std::ifstream file(path);
    if (!file) {
      return absl::NotFoundError(absl::StrCat("cannot read ", path));
    }
    services.json_ = Json::parse(file, nullptr, false);
    if (!services.json_.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is not a JSON object"));
    }
    for (const auto& [key, value] : services.json_.items()) {
      const bool a_codec =
          key == "encode_bytes_per_second" || key == "decode_bytes_per_second";
      const bool known =
          a_codec || key == "merge_bytes_per_second" || key == "commit_seconds";
      if (!known || !(IsRate(value) || (a_codec && AreRates(value)))) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": ", key, " is not a key with a number"));
      }
    }
    return services;
  }

  Service Of(const OurMethod& method, const SimulatedModel& model,
             const Flags& flags, bool codec_blocks) const {
    const double hosts =
        std::max(1.0, flags.hosts_per_billion *
                          static_cast<double>(model.element_count) / 1e9);
    Service service;
    service.island_count = flags.islands;
    service.codec_blocks = codec_blocks;
    service.commit_seconds =
        json_.value("commit_seconds", service.commit_seconds);
    service.merge_bytes_per_second =
        hosts *
        json_.value("merge_bytes_per_second", service.merge_bytes_per_second);
    service.encode_bytes_per_second =
        hosts * OfCodec("encode_bytes_per_second", method.up_codec,
                        service.encode_bytes_per_second);
    service.decode_bytes_per_second =
        hosts * OfCodec("decode_bytes_per_second", method.down_codec,
                        service.decode_bytes_per_second);
    return service;
  }

 private:
  static bool IsRate(const Json& value) {
    return value.is_number() && value.get<double>() > 0;
  }
  static bool AreRates(const Json& value) {
    if (!value.is_object()) return false;
    for (const auto& [name, rate] : value.items()) {
      if (!worker::planner::FindCodecNamed(name).has_value() || !IsRate(rate)) {
        return false;
      }
    }
    return true;
  }

  double OfCodec(const char* key, codec::CodecId codec, double other) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return other;
    if (found->is_number()) return found->get<double>();
    return found->value(std::string(codec::CodecName(codec)), other);
  }

  Json json_ = Json::object();
};

Link MakeLink(const Flags& flags, double bytes_per_second) {
  Link link;
  link.up_bytes_per_second = link.down_bytes_per_second = bytes_per_second;
  link.round_trip_seconds = flags.rtt_ms / 1000;
  link.payload_share = flags.payload_share;
  return link;
}

double Simulate(const OurMethod& method, const SimulatedModel& model,
                const Service& service, const Link& link) {
  return SimulateServers(
      MakeExchange(method, model),
      std::vector<double>(service.island_count, model.step_seconds), link,
      service);
}

// --- Output ------------------------------------------------------------------

std::string Figure(double gigabits) {
  return gigabits > 0 ? absl::StrFormat("%.3g", gigabits) : std::string("-");
}

// "simulated (published)" for each target.
void PrintRow(const SimulatedModel& model, const char* method,
              const std::vector<double>& gigabits,
              const std::array<double, 5>* published) {
  std::cout << absl::StrFormat("%-5s %-25s", model.name, method);
  for (size_t t = 0; t < gigabits.size(); ++t) {
    std::string figure = Figure(gigabits[t]);
    if (published != nullptr) {
      absl::StrAppend(&figure, " (", Figure((*published)[t]), ")");
    }
    std::cout << absl::StrFormat(" %14s", figure);
  }
  std::cout << std::endl;
}

void Emit(const Flags& flags, const char* name, const SimulatedModel& model,
          const char* method, const std::vector<double>& gigabits,
          const std::array<double, 5>* published) {
  if (!flags.json) return PrintRow(model, method, gigabits, published);
  Json row;
  row["case"] = name;
  row["model"] = model.name;
  row["method"] = method;
  row["utilization"] = kTargets;
  row["gigabits_per_second"] = Json::array();
  for (const double figure : gigabits) {
    row["gigabits_per_second"].push_back(figure > 0 ? Json(figure)
                                                    : Json(nullptr));
  }
  if (published != nullptr) row["published_gigabits_per_second"] = *published;
  std::cout << row.dump() << std::endl;
}

void EmitBandwidths(const Flags& flags, const Services& services) {
  if (!flags.json) {
    std::cout << "Gb/s for a share of time computing: simulated (published)\n"
              << absl::StrFormat("%-5s %-25s %14s %14s %14s %14s %14s\n",
                                 "model", "method", "50 %", "80 %", "90 %",
                                 "95 %", "99 %");
  }
  for (size_t m = 0; m < SimulatedModels().size(); ++m) {
    const SimulatedModel& model = SimulatedModels()[m];
    for (const PublishedMethod& method : PublishedMethods()) {
      const Reduction reduction = ComputeReduction(method, model);
      std::vector<double> gigabits;
      for (const double target : kTargets) {
        gigabits.push_back(
            LeastBandwidth(
                [&](double rate) { return SimulateReduction(reduction, rate); },
                target) /
            kGigabit);
      }
      Emit(flags, "reduction", model, method.name, gigabits,
           &method.gigabits[m]);
    }
    for (const OurMethod& method : OurMethods()) {
      const Service service = services.Of(method, model, flags, false);
      std::vector<double> gigabits;
      for (const double target : kTargets) {
        gigabits.push_back(LeastBandwidth(
                               [&](double rate) {
                                 return Simulate(method, model, service,
                                                 MakeLink(flags, rate));
                               },
                               target) /
                           kGigabit);
      }
      Emit(flags, "servers", model, method.name, gigabits, nullptr);
    }
  }
}

// The row "1B, H = 100 at 1 Gb/s: at least 95 %".
absl::Status EmitAtOneGigabit(const Flags& flags, const Services& services) {
  const SimulatedModel& model = SimulatedModels()[0];
  if (!flags.json) {
    std::cout << "\n1B, H = 100 at 1 Gb/s: share of time computing; with the "
                 "codec beside the computing\n"
              << absl::StrFormat("%-31s %10s %10s   %s\n", "method",
                                 "simulated", "planned", "codec blocks");
  }
  const PublishedMethod& published = PublishedMethods().back();
  const double rival =
      SimulateReduction(ComputeReduction(published, model), kGigabit);
  if (flags.json) {
    Json row;
    row["case"] = "at_1_gigabit";
    row["model"] = model.name;
    row["method"] = published.name;
    row["utilization"] = rival;
    row["planned"] = nullptr;
    row["codec_blocks"] = nullptr;
    row["reaches_95"] = rival >= 0.95;
    std::cout << row.dump() << std::endl;
  } else {
    std::cout << absl::StrFormat("%-31s %8.1f %%\n", published.name,
                                 100 * rival);
  }
  for (const OurMethod& method : OurMethods()) {
    double shares[2], planned[2];
    for (const bool blocks : {false, true}) {
      const Service service = services.Of(method, model, flags, blocks);
      const Link link = MakeLink(flags, kGigabit);
      Compute compute;
      compute.step_seconds = model.step_seconds;
      ASSIGN_OR_RETURN(const worker::planner::Forecast forecast,
                       worker::planner::Predict(MakeExchange(method, model),
                                                compute, link, service));
      shares[blocks] = Simulate(method, model, service, link);
      planned[blocks] = forecast.utilization;
      if (!flags.json) continue;
      Json row;
      row["case"] = "at_1_gigabit";
      row["model"] = model.name;
      row["method"] = method.name;
      row["utilization"] = shares[blocks];
      row["planned"] = planned[blocks];
      row["codec_blocks"] = blocks;
      row["reaches_95"] = shares[blocks] >= 0.95;
      std::cout << row.dump() << std::endl;
    }
    if (flags.json) continue;
    std::cout << absl::StrFormat("%-31s %8.1f %% %8.1f %%   %.1f %%%s\n",
                                 method.name, 100 * shares[0], 100 * planned[0],
                                 100 * shares[1],
                                 shares[0] >= 0.95 ? "   reaches 95 %" : "");
  }
  return absl::OkStatus();
}

absl::Status Benchmark(const Flags& flags) {
  ASSIGN_OR_RETURN(const Services services, Services::Read(flags.services));
  EmitBandwidths(flags, services);
  return EmitAtOneGigabit(flags, services);
}

int Main(int argc, char** argv) {
  Flags flags;
  flags::Command app("utilization",
                     "Share of time computing against bandwidth, simulated");
  app.AddFlag("--json", flags.json, "One JSON object a line");
  app.Add("--services", flags.services, "JSON file of throughputs");
  app.Add("--islands", flags.islands, "Islands").Check(flags::Range(1, 64));
  app.Add("--rtt-ms", flags.rtt_ms, "Round trip of our islands, ms")
      .Check(flags::NotNegative());
  app.Add("--payload-share", flags.payload_share,
          "Payload over what the link of our islands carries")
      .Check(flags::Range(0.01, 1.0));
  app.Add("--hosts-per-billion", flags.hosts_per_billion,
          "Hosts an island, and servers, a billion parameters")
      .Check(flags::Positive());
  if (const auto end = app.ParseOrEnd(argc, argv)) return *end;
  const absl::Status status = Benchmark(flags);
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
