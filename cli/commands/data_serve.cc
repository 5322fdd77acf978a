#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/flags/program_flags.h"
#include "base/host_port/host_port.h"
#include "base/io/files.h"
#include "base/io/own_file.h"
#include "base/io/posix_file_system.h"
#include "base/rpc/certificates/authority.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "cli/units/units.h"
#include "worker/api/serve_data.h"

namespace atl::cli {
namespace {

constexpr int64_t kCaBytesMax = 1 << 20;

struct ServeOptions {
  worker::DataServerOptions server;
  std::string listen;
  std::string island_ca;
  std::string up;
  std::string port_file;
};

absl::StatusOr<worker::DataServerOptions> Complete(
    const ServeOptions& options) {
  worker::DataServerOptions server = options.server;
  absl::StatusOr<HostPort> listen = ParseHostPort(options.listen);
  if (!listen.ok()) return WithContext(listen.status(), "--listen");
  server.listen = *listen;
  if (!options.up.empty()) {
    const absl::StatusOr<double> cap = ParseBandwidth(options.up);
    if (!cap.ok()) return WithContext(cap.status(), "--up");
    server.bytes_per_second = *cap;
  }
  ASSIGN_OR_RETURN(server.access.island_ca_pem,
                   ReadFile(PosixFileSystem(), options.island_ca, kCaBytesMax));
  const auto facts = rpc::ReadFacts(server.access.island_ca_pem);
  if (!facts.ok()) {
    return UsageError(absl::StrCat("--island-ca ", options.island_ca, " ",
                                   facts.status().message()),
                      "It is island-ca.crt of `atoll ca init`.");
  }
  return server;
}

absl::Status Serve(Context& context, const ServeOptions& options) {
  ASSIGN_OR_RETURN(const worker::DataServerOptions server_options,
                   Complete(options));
  Interrupt interrupt;
  ASSIGN_OR_RETURN(const std::unique_ptr<worker::DataServer> server,
                   worker::DataServer::Start(server_options));
  const HostPort& address = server->address();
  RETURN_IF_ERROR(WritePortFile(options.port_file, absl::StrCat(address.port)));
  context.output().Message(
      absl::StrCat("serves ", FormatCount(server->files().file_count()),
                   " files of ", FormatBytes(server->files().size_bytes()),
                   " on ", JoinHostPort(address.host, address.port),
                   "; run file: [data] url = \"https://HOST:", address.port,
                   "/manifest.json\", order = \"by_file\""));
  if (options.server.access.run_uids.empty()) {
    context.output().Message(
        "every island that is enrolled in any run of this cluster may read it; "
        "--run RUN_UID names the runs that may");
  }
  WaitForStop(interrupt.first());
  const worker::DataServer::Counts counts = server->counts();
  Json data;
  data["requests"] = counts.request_count;
  data["refused"] = counts.refused_count;
  data["sent_bytes"] = counts.sent_bytes;
  Fields fields;
  fields.Add("requests", FormatCount(counts.request_count));
  fields.Add("refused", FormatCount(counts.refused_count));
  fields.Add("sent", FormatBytes(counts.sent_bytes));
  context.output().Print(data, fields.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddDataServe(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "serve", "Serve published data over HTTPS to enrolled islands");
  command.Footer(
      "DIR is a directory of `atoll data publish`. Islands that joined with a\n"
      "join string read it: their enrolment has a token. Others read nothing.\n"
      "The certificate is of a public CA, or of `atoll ca issue --role data`.\n"
      "`atoll run create --data-copy DIR` makes a run whose URL this machine\n"
      "may not read. Ctrl-C or SIGTERM ends it.\n"
      "Example:\n"
      "  atoll ca issue --dir ca --role data --id d0 --host d.example.org \\\n"
      "    --out d0\n"
      "  atoll data serve tokens --listen 0.0.0.0:443 --tls-cert d0/tls.crt "
      "\\\n"
      "    --tls-key d0/tls.key --island-ca d0/island-ca.crt --run RUN_UID");
  auto options = std::make_shared<ServeOptions>();
  worker::DataServerOptions& server = options->server;
  command.Add("dir", server.directory, "Directory with a manifest.json")
      .Required();
  command
      .Add("--listen", options->listen,
           "HOST:PORT to serve on; port 0 takes a free one")
      .Required();
  command
      .Add("--tls-cert", server.cert_path,
           "The server's certificate with its chain; read again when "
           "it changes")
      .Required();
  command.Add("--tls-key", server.key_path, "Its private key").Required();
  command
      .Add("--island-ca", options->island_ca,
           "The island CA's certificate, whose key signs the tokens")
      .Required();
  command.Add("--run", server.access.run_uids,
              "run_uid of a run whose islands may read; may be "
              "repeated; default: every run of the island CA");
  command.Add("--up", options->up,
              "Most that it sends in all: 5Mb/s, 1MB/s; default: no "
              "cap");
  flags::AddTrustedProxyFlag(command, server.trusted_proxies);
  command.Add("--port-file", options->port_file,
              "File that the port of --listen is written to");
  SetAction(command, context, Serve, options);
}

}  // namespace atl::cli
