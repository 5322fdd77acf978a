#include "worker/api/run_island.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/io/posix_file_system.h"
#include "base/layout/digest.h"
#include "base/layout/external_model.h"
#include "base/layout/run_length.h"
#include "base/layout/weight_unit.h"
#include "base/metrics/metrics.h"
#include "base/obs/log.h"
#include "base/rpc/channel.h"
#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "coordinator/client/client.h"
#include "worker/engine/device/device_spec.h"
#include "worker/engine/device/devices.h"
#include "worker/island/group/device.h"
#include "worker/island/group/island_world.h"
#include "worker/island/group/rendezvous.h"
#include "worker/island/island_member.h"
#include "worker/island/island_part.h"
#include "worker/island/island_runner.h"
#include "worker/island/retry_backoff.h"
#include "worker/sdk/final_copy.h"
#include "worker/sdk/remote_trainer.h"
#include "worker/sdk/trainer_host.h"

namespace atl::worker {

namespace {

// A failed try to read the run waits this long for a connection.
constexpr absl::Duration kConnectionWait = absl::Milliseconds(500);
// How long processes wait for each other before they log it.
constexpr absl::Duration kMeetingMax = absl::Seconds(20);
// How long a restarted process may find the old world, which has not ended yet.
constexpr absl::Duration kStaleWorldMax = absl::Seconds(30);
// How long an exchange that has lost its trainer waits for another one.
constexpr absl::Duration kTrainerAwayMax = absl::Minutes(10);
// The final parameters of a complete run: the longest wait for a trainer that
// wants them, and for a byte of them.
constexpr absl::Duration kFinalTrainerMax = absl::Seconds(20);
constexpr absl::Duration kFinalIdleMax = absl::Seconds(10);

// The rendezvous of the processes; empty for one process.
absl::StatusOr<Rendezvous> PrepareRendezvous(const RunIslandOptions& options) {
  if (options.place.process_count == 1) return Rendezvous();
  return MakeRendezvous({.run_id = options.run_id,
                         .island_id = options.island_id,
                         .address = options.place.rendezvous,
                         .secret_path = options.rendezvous_secret_path,
                         .tls_key_path = options.security.tls.key,
                         .machine_secret_path = options.machine_secret_path,
                         .insecure = options.security.insecure});
}

// Why the processes did not connect, and a remedy.
absl::Status DoNotMeet(const absl::Status& status) {
  const absl::Status told =
      Annotate(status, "the processes of the island did not connect");
  if (!absl::IsPermissionDenied(status)) return told;
  return absl::Status(
      told.code(),
      absl::StrCat(told.message(),
                   "; all need the same --run, --island-id and secret: "
                   "--rendezvous-secret, otherwise the TLS key, otherwise (on "
                   "one machine) the file that the user's processes share"));
}

absl::StatusOr<std::unique_ptr<IslandWorld>> Meet(
    const RunIslandOptions& options, const Rendezvous& rendezvous,
    engine::Devices& devices) {
  const absl::Time begin = SystemClock().Now();
  const absl::Time give_up = begin + options.join_patience;
  if (options.place.process_count > 1) {
    LOG(INFO) << "process " << options.place.process_index << " of "
              << options.place.process_count << " waits for the others at "
              << options.place.rendezvous << ", for "
              << options.join_patience << " at most";
  }
  for (int attempt = 1;; ++attempt) {
    const absl::Duration left = give_up - SystemClock().Now();
    auto world = IslandWorld::Join(options.place, rendezvous,
                                   std::min(kMeetingMax, left), devices);
    if (world.ok()) return world;
    const absl::Status& status = world.status();
    const bool away =
        absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    const bool stale = (absl::IsFailedPrecondition(status) ||
                        absl::IsAlreadyExists(status)) &&
                       SystemClock().Now() < begin + kStaleWorldMax;
    if (!(away || stale) || SystemClock().Now() >= give_up) {
      return DoNotMeet(status);
    }
    if (options.stop.stop_requested()) {
      return absl::CancelledError(
          "stopped before the processes of the island connected");
    }
    LOG(WARNING) << "the processes of the island have not connected yet: "
                 << status.message();
    absl::SleepFor(RetryBackoff(attempt));
  }
}

// One attempt: from the rendezvous to the end of the run or of a process.
absl::StatusOr<IslandProgress> RunOnce(const RunIslandOptions& options,
                                       IslandLinks links,
                                       const Rendezvous& rendezvous,
                                       engine::Devices& devices) {
  ASSIGN_OR_RETURN(const std::unique_ptr<IslandWorld> world,
                   Meet(options, rendezvous, devices));
  links.group = world->group();
  links.make_trainer = [&world](const engine::TrainerOptions& trainer) {
    return world->MakeTrainer(trainer);
  };
  links.describe_device = [&] {
    return DescribeDevice(devices, world->first_rank());
  };
  links.check_run = [&options](const v1::RunSpec& spec) -> absl::Status {
    if (options.check_run) RETURN_IF_ERROR(options.check_run(spec));
    if (!options.trainer_path.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(CheckModelIsKnown(options.run_id, spec));
    return CheckRunForPlace(options.place, spec);
  };
  return RunIslandOver(options, links);
}

// An island that loses a process restarts; the other processes wait for it.
absl::StatusOr<IslandProgress> RunAttempts(const RunIslandOptions& options,
                                           const IslandLinks& links,
                                           const Rendezvous& rendezvous,
                                           engine::Devices& devices) {
  int64_t step_before = -1;
  for (int failure_count = 1;; ++failure_count) {
    int64_t step = -1;
    RunIslandOptions attempt = options;
    attempt.on_progress = [&](const IslandProgress& progress) {
      if (progress.activity == "push") step = progress.step;
      if (options.on_progress) options.on_progress(progress);
    };
    absl::StatusOr<IslandProgress> end =
        RunOnce(attempt, links, rendezvous, devices);
    if (end.ok() || !IsProcessLost(end.status())) return end;
    if (options.stop.stop_requested()) {
      return absl::CancelledError("stopped while the island restarted");
    }
    // The attempt made progress.
    if (step > step_before) failure_count = 1;
    step_before = std::max(step_before, step);
    if (failure_count > options.place.restart_count_max) {
      return Annotate(end.status(), absl::StrCat(
          "given up after ", options.place.restart_count_max,
          " restarts without a contribution"));
    }
    const absl::Duration wait = RetryBackoff(failure_count);
    LOG(WARNING) << "the island restarts in " << wait << ": "
                 << end.status();
    absl::SleepFor(wait);
  }
}

absl::StatusOr<std::unique_ptr<TrainerHost>> StartTrainerHost(
    const RunIslandOptions& options) {
  if (options.place.process_count != 1 || !options.place.mesh.empty()) {
    return absl::InvalidArgumentError(
        "--mesh and --processes are for Atoll's own engine: a trainer spreads "
        "itself over its devices");
  }
  return TrainerHost::Start(options.trainer_path);
}

v1::TrainerHello MakeHello(const RunIslandOptions& options,
                           const v1::Run& run) {
  const v1::ScheduleSpec& schedule = run.spec().schedule();
  v1::TrainerHello hello;
  hello.set_run_id(options.run_id);
  hello.set_run_uid(run.run_uid());
  hello.set_island_id(options.island_id);
  hello.set_program_version(options.program_version);
  hello.set_strict(schedule.timing() == v1::TIMING_STRICT);
  hello.set_inner_step_count(schedule.inner_step_count());
  hello.set_planned_step_count(PlannedStepCount(run.spec()));
  // Equal weights need no counts, unless a budget does.
  if (run.spec().outer().weighting() != v1::WEIGHTING_UNIFORM ||
      HasTokenBudget(schedule)) {
    hello.set_weight_unit(
        std::string(WeightUnitName(run.spec().weight_unit())));
  }
  return hello;
}

absl::StatusOr<std::unique_ptr<IslandTrainer>> MakeRemoteTrainer(
    TrainerHost& host, const RunIslandOptions& options, const v1::Run& run,
    FileSystem& files, const JoinFirst& join) {
  // Its run is not complete: the folder serves another run, or a restored one.
  RemoveFinalCopies(files, MakeSavePlace(options));
  if (options.metrics != nullptr) {
    options.metrics->SetReady(absl::UnavailableError(
        absl::StrCat("waits for a trainer at ", options.trainer_path)));
  }
  const auto give_place = [&](v1::TrainerJoin& place) -> absl::Status {
    ASSIGN_OR_RETURN(const v1::JoinResponse joined, join());
    place.set_slot(joined.slot());
    place.set_data_shard(joined.data_shard());
    place.set_data_shard_count(run.spec().data().data_shard_count());
    return absl::OkStatus();
  };
  return RemoteTrainer::Create(
      host, MakeHello(options, run), run.spec(), give_place, options.stop,
      host.lost().ok() ? absl::InfiniteFuture()
                       : SystemClock().Now() + kTrainerAwayMax);
}

// A complete run, with its final versions.
struct FinalRun {
  v1::GetRunResponse found;
  RunLayout layout;

  std::vector<absl::Span<float>> RegionsOf(const TrainerHost& host) const {
    std::vector<absl::Span<float>> regions;
    for (int32_t f = 0; f < found.cut_size(); ++f) {
      regions.push_back(host.region(f));
    }
    return regions;
  }
};

absl::StatusOr<FinalRun> ReadFinalRun(const RunIslandOptions& options,
                                      const coordinator::Client& client) {
  ASSIGN_OR_RETURN(v1::GetRunResponse found, client.GetRun(options.run_id));
  ASSIGN_OR_RETURN(RunLayout layout,
                   RunLayout::Create(found.run().spec().layout()));
  if (found.cut_size() != layout.fragment_count()) {
    return absl::UnimplementedError(
        "the coordinator names no final versions: it is an older program");
  }
  for (int32_t f = 0; f < found.cut_size(); ++f) {
    if (found.cut(f).fragment() != f) {
      return absl::InternalError("the final versions are out of order");
    }
  }
  return FinalRun{std::move(found), std::move(layout)};
}

// Keeps a copy of the final parameters, which the regions of `host` have. The
// servers have them, too: a failure is logged. FAILED_PRECONDITION: the regions
// have others.
absl::Status KeepFinal(const TrainerHost& host, const RunIslandOptions& options,
                       const IslandLinks& links, const FinalRun& run) {
  const SavePlace place = MakeSavePlace(options);
  LOG(INFO) << "keeps a copy of the run's final parameters at "
            << FinalCopyPath(place);
  absl::Status kept = links.file_system->CreateDirectories(place.directory);
  if (kept.ok()) {
    kept = WriteFinalCopy(*links.file_system, place, run.found, run.layout,
                          run.RegionsOf(host));
  }
  if (!kept.ok()) LOG(WARNING) << "no copy was kept: " << kept;
  return kept;
}

// Gives the trainer of `host` the final parameters of a complete run, which it
// may lack: those of the island's copy or the servers'. Its state stays as it
// is. OK without it: no trainer has come.
absl::Status GiveFinal(TrainerHost& host, const RunIslandOptions& options,
                       const coordinator::Client& client,
                       const IslandLinks& links) {
  ASSIGN_OR_RETURN(const FinalRun final_run, ReadFinalRun(options, client));
  const auto& [found, layout] = final_run;
  const v1::Run& run = found.run();
  const auto no_place = [&](v1::TrainerJoin& place) {
    place.set_slot(-1);
    place.set_data_shard_count(run.spec().data().data_shard_count());
    return absl::OkStatus();
  };
  const absl::Status connected =
      host.Connect(MakeHello(options, run), run.spec().layout(), layout,
                   no_place, options.stop,
                   SystemClock().Now() + kFinalTrainerMax);
  if (absl::IsDeadlineExceeded(connected)) return absl::OkStatus();
  RETURN_IF_ERROR(connected);
  v1::TrainerMessage write;
  for (const v1::FragmentVersion& at : found.cut()) {
    write.mutable_write()->add_fragments(at.fragment());
  }
  const SavePlace place = MakeSavePlace(options);
  if (ReadFinalCopy(*links.file_system, place, found, layout,
                    final_run.RegionsOf(host))) {
    LOG(INFO) << "gives the final parameters of " << FinalCopyPath(place);
    return host.Ask(write).status();
  }
  const HeldLayout held(layout);
  ASSIGN_OR_RETURN(const std::unique_ptr<server::ParameterClient> parameters,
                   links.make_parameter_client(run, held));
  parameters->SetRoutes(server::ToRoutes(found));
  server::CallBounds bounds;
  bounds.stop = options.stop;
  bounds.idle_max = kFinalIdleMax;
  for (const v1::FragmentVersion& at : found.cut()) {
    RETURN_IF_ERROR(Annotate(
        parameters
            ->Pull(at.fragment(), at.version(),
                   Digest128::FromProto(at.digest()),
                   host.region(at.fragment()), bounds)
            .status,
        absl::StrCat("run ", options.run_id,
                     " is complete, and the servers do not give its final "
                     "parameters (`atoll run export ",
                     options.run_id,
                     " --output DIR` reads them once the servers are back)")));
  }
  RETURN_IF_ERROR(host.Ask(write).status());
  KeepFinal(host, options, links, final_run).IgnoreError();
  return absl::OkStatus();
}

// Ends the trainer of an island that was a member until `end`.
void EndMember(TrainerHost& host, const RunIslandOptions& options,
               const coordinator::Client& client, const IslandLinks& links,
               const absl::StatusOr<IslandProgress>& end) {
  if (end.ok() && !end->is_complete) {
    return host.End(absl::CancelledError(
        "the island has left the run before its end; a new start joins it "
        "again"));
  }
  // A stop does not wait for the copy.
  if (end.ok() && !options.stop.stop_requested()) {
    const absl::StatusOr<FinalRun> run = ReadFinalRun(options, client);
    if (!run.ok() || run->found.run().run_uid() != host.run_uid()) {
      LOG(WARNING) << "no copy of the final parameters is kept: "
                   << (run.ok() ? absl::NotFoundError("the run is deleted")
                                : run.status());
    } else if (absl::IsFailedPrecondition(
                   KeepFinal(host, options, links, *run))) {
      return host.End(absl::UnavailableError(absl::StrCat(
          "run ", options.run_id, " is complete, and the trainer does not have ",
          "its final parameters: start it again, or read them with `atoll run ",
          "export ", options.run_id, " --output DIR`")));
    }
  }
  host.End(end.status(), end.ok() ? end->version : 0);
}

}  // namespace

absl::Status CheckModelIsKnown(const std::string& run_id,
                               const v1::RunSpec& spec) {
  if (!IsExternal(spec.model())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "run ", run_id, " trains a model of its own (architecture ",
      kExternalArchitecture, "): give --trainer unix:PATH"));
}

absl::StatusOr<server::ParameterClientOptions> MakeParameterOptions(
    const RunIslandOptions& options, const v1::Run& run,
    const HeldLayout& held) {
  server::ParameterClientOptions data = server::MakeRunOptions(run);
  data.channel =
      rpc::MakeChannelOptions(rpc::ChannelKind::kData, options.security);
  data.caps = server::TakePart(options.caps, held.element_count(),
                               held.layout().element_count(),
                               options.place.process_count, data.shard_count);
  const double least = server::LeastCapBytesPerSecond(data.shard_count);
  const absl::Status wide_enough =
      server::CheckCaps(data.caps, data.shard_count);
  if (!wide_enough.ok()) {
    return Annotate(
        wide_enough,
        absl::StrCat("this process's part of --up and --down; the ",
                     options.place.process_count,
                     " processes of the island need ",
                     options.place.process_count * least,
                     " bytes a second in all"));
  }
  data.stream_count = options.stream_count;
  if (!held.is_all()) data.held = held.blocks();
  return data;
}

absl::StatusOr<IslandProgress> RunIslandOver(const RunIslandOptions& options,
                                             const IslandLinks& links) {
  if (links.group != nullptr && !links.group->leads()) {
    return RunMember(options, links);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<IslandRunner> runner,
                   IslandRunner::Create(options, links));
  return runner->Run();
}

absl::StatusOr<IslandProgress> RunIsland(
    const RunIslandOptions& options,
    const std::function<void(IslandLinks&)>& alter) {
  const rpc::ChannelOptions control =
      rpc::MakeChannelOptions(rpc::ChannelKind::kControl, options.security);
  coordinator::IslandControlClientOptions client_options;
  client_options.address = options.coordinator_address;
  client_options.channel = control;
  client_options.on_join_waiting = [](absl::string_view peer) {
    LOG(WARNING) << peer << " has not answered the join yet";
  };
  ASSIGN_OR_RETURN(
      const std::unique_ptr<coordinator::IslandControlClient> client,
      coordinator::MakeIslandControlClient(client_options));
  coordinator::ClientOptions run_options;
  run_options.address = options.coordinator_address;
  run_options.channel = control;
  run_options.on_waiting = [](absl::string_view peer,
                              absl::Duration patience, absl::string_view why) {
    LOG(WARNING) << peer << " has not answered yet: " << why
                 << "; waiting up to " << patience << ", then asking again";
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<coordinator::Client> operator_client,
                   coordinator::MakeClient(run_options));
  IslandLinks links;
  links.coordinator = client.get();
  links.file_system = &PosixFileSystem();
  links.get_run = [&]() -> absl::StatusOr<v1::Run> {
    absl::StatusOr<v1::GetRunResponse> response =
        operator_client->GetRun(options.run_id);
    if (absl::IsUnavailable(response.status())) {
      operator_client->WaitForConnection(kConnectionWait);
    }
    RETURN_IF_ERROR(response.status());
    return std::move(*response->mutable_run());
  };
  links.make_parameter_client = [&](const v1::Run& run,
                                    const HeldLayout& held)
      -> absl::StatusOr<std::unique_ptr<server::ParameterClient>> {
    ASSIGN_OR_RETURN(const server::ParameterClientOptions data,
                     MakeParameterOptions(options, run, held));
    return server::MakeParameterClient(data, held.layout());
  };
  alter(links);
  RETURN_IF_ERROR(MakeMesh(options.place).status());
  ASSIGN_OR_RETURN(const engine::DeviceSpec device,
                   engine::ParseDeviceSpec(options.place.device));
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::Devices> devices,
                   engine::OpenDevices(device));
  ASSIGN_OR_RETURN(const Rendezvous rendezvous, PrepareRendezvous(options));
  std::unique_ptr<TrainerHost> host;
  if (!options.trainer_path.empty()) {
    ASSIGN_OR_RETURN(host, StartTrainerHost(options));
    links.make_island_trainer = [&](const v1::Run& run,
                                    const JoinFirst& join) {
      return MakeRemoteTrainer(*host, options, run, *links.file_system, join);
    };
  }
  absl::StatusOr<IslandProgress> end =
      RunAttempts(options, links, rendezvous, *devices);
  if (host == nullptr) return end;
  if (!HasReason(end.status(), kRunCompleted)) {
    EndMember(*host, options, *operator_client, links, end);
    return end;
  }
  const absl::Status given =
      GiveFinal(*host, options, *operator_client, links);
  host->End(given);
  RETURN_IF_ERROR(given);
  return end;
}

}  // namespace atl::worker
