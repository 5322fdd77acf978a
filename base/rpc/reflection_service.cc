#include "base/rpc/reflection_service.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "grpcpp/support/server_callback.h"

namespace atl::rpc {
namespace {

namespace reflection = grpc::reflection::v1alpha;

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using Question = reflection::ServerReflectionRequest;
using Answer = reflection::ServerReflectionResponse;

// Adds `file` and all that it imports, each once.
void AddFile(const FileDescriptor& file, std::set<const FileDescriptor*>& added,
             reflection::FileDescriptorResponse& files) {
  if (!added.insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  files.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) {
    AddFile(*file.dependency(i), added, files);
  }
}

void SetFile(const FileDescriptor* file, const std::string& name,
             Answer& answer) {
  if (file == nullptr) {
    auto& error = *answer.mutable_error_response();
    error.set_error_code(grpc::StatusCode::NOT_FOUND);
    error.set_error_message(absl::StrCat("not found: ", name));
    return;
  }
  std::set<const FileDescriptor*> added;
  AddFile(*file, added, *answer.mutable_file_descriptor_response());
}

Answer AnswerTo(const Question& question,
                const std::vector<std::string>& service_names) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  Answer answer;
  answer.set_valid_host(question.host());
  *answer.mutable_original_request() = question;
  switch (question.message_request_case()) {
    case Question::kFileByFilename: {
      const std::string& name = question.file_by_filename();
      SetFile(pool.FindFileByName(name), name, answer);
      break;
    }
    case Question::kFileContainingSymbol: {
      const std::string& name = question.file_containing_symbol();
      SetFile(pool.FindFileContainingSymbol(name), name, answer);
      break;
    }
    case Question::kListServices:
      for (const std::string& name : service_names) {
        answer.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    default:
      answer.mutable_error_response()->set_error_code(
          grpc::StatusCode::UNIMPLEMENTED);
  }
  return answer;
}

// Reads a question, writes its answer, and so on.
class Stream : public grpc::ServerBidiReactor<Question, Answer> {
 public:
  explicit Stream(const std::vector<std::string>& service_names)
      : service_names_(service_names) {
    StartRead(&question_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    answer_ = AnswerTo(question_, service_names_);
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::CANCELLED);
      return;
    }
    StartRead(&question_);
  }
  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>& service_names_;
  Question question_;
  Answer answer_;
};

class ReflectionService : public reflection::ServerReflection::CallbackService {
 public:
  explicit ReflectionService(std::vector<std::string> service_names)
      : service_names_(std::move(service_names)) {}

  grpc::ServerBidiReactor<Question, Answer>* ServerReflectionInfo(
      grpc::CallbackServerContext*) override {
    return new Stream(service_names_);
  }

 private:
  const std::vector<std::string> service_names_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeReflectionService(
    std::vector<std::string> service_names) {
  return std::make_unique<ReflectionService>(std::move(service_names));
}

}  // namespace atl::rpc
