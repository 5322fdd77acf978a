#include "server/service/import_stream.h"

#include "atoll/v1/parameter_service.pb.h"
#include "base/status/status_macros.h"

namespace atl::server {

ImportStream* ImportStream::Start(grpc::CallbackServerContext* call,
                                  const ServiceContext& context) {
  ImportStream* stream = new ImportStream(call, context);
  stream->Begin();
  return stream;
}

absl::StatusOr<UploadStream::Opened> ImportStream::Open(
    const grpc::ByteBuffer& message) {
  ASSIGN_OR_RETURN(const v1::ImportHeader header,
                   ReadHeader<v1::ImportParametersRequest>(message));
  Opened opened;
  ASSIGN_OR_RETURN(opened.shard, FindShard(header.run_id()));
  ASSIGN_OR_RETURN(opened.contribution, opened.shard->OpenImport(header));
  return opened;
}

std::unique_ptr<google::protobuf::MessageLite> ImportStream::MakeAnswer(
    const std::vector<IndexRange>& missing, bool stored) const {
  return UploadAnswer<v1::ImportParametersResponse>(missing, stored);
}

}  // namespace atl::server
