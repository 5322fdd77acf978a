// atoll audit.
#include <cstdint>
#include <memory>
#include <string>

#include "atoll/v1/enrolment_service.grpc.pb.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/enrol/enrol_commands.h"
#include "cli/output/output.h"
#include "cli/output/table.h"
#include "coordinator/client/client.h"

namespace atl::cli {
namespace {

constexpr int kPageSize = 1000;

struct AuditOptions {
  std::string run_id;
  int64_t after = 0;
};

absl::Status Audit(Context& context, const AuditOptions& options) {
  ASSIGN_OR_RETURN(const auto client, context.MakeClient());
  v1::ListAuditRecordsRequest request;
  request.set_page_size(kPageSize);
  request.set_after_number(options.after);
  Table table({"TIME", "WHO", "WHAT", "RUN", "SUBJECT"});
  Json items = Json::array();
  while (true) {
    ASSIGN_OR_RETURN(
        const v1::ListAuditRecordsResponse page,
        client->Call(&v1::EnrolmentService::Stub::ListAuditRecords, request));
    if (page.records().empty()) break;
    for (const v1::AuditRecord& record : page.records()) {
      request.set_after_number(record.number());
      if (!options.run_id.empty() && record.run_id() != options.run_id) {
        continue;
      }
      items.push_back(ToJson(record));
      table.AddRow({absl::FormatTime("%Y-%m-%d %H:%M:%S",
                                     FromProto(record.time()),
                                     absl::UTCTimeZone()),
                    record.actor(), record.action(), record.run_id(),
                    record.subject()});
    }
  }
  context.output().PrintList(
      "records", items,
      table.empty() ? "the audit log has no such events\n" : table.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddAudit(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "audit", "Show who did what: tokens, certificates, runs, islands");
  command.Footer(
      "-o jsonl prints one event a line, with the SHA-256 of the actor's\n"
      "certificate. Times are UTC. The coordinator keeps the newest events of\n"
      "operators, about 100,000, and as many enrolments and renewals: save them\n"
      "elsewhere if you need more.\n"
      "Examples:\n"
      "  atoll audit --run spring\n"
      "  atoll audit -o jsonl --after 4711 >> audit.jsonl");
  auto options = std::make_shared<AuditOptions>();
  command.Add("--run", options->run_id,
              "Only events of this run; default: all");
  command.Add("--after", options->after, "Only events with a greater number")
      .Check(flags::NotNegative());
  SetAction(command, context, Audit, options);
}

}  // namespace atl::cli
