#include "server/health_call.h"

#include <utility>
#include <vector>

#include "rpcenv.grpc.pb.h"

namespace torchbeast {

namespace {

const char kCheck[] = "/grpc.health.v1.Health/Check";
// HealthCheckResponse{status: SERVING}: field 1, a varint, is 1.
const char kServing[] = "\x08\x01";

}  // namespace

grpc::Status CheckHealth(const std::string& request) {
  // HealthCheckRequest{string service = 1}: empty, or tag, length (of these names one byte), name.
  const std::string service = rpcenv::EnvironmentService::service_full_name();
  const std::string named = "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
  const std::string unnamed("\x0a\0", 2);
  if (request.empty() || request == unnamed || request == named) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::NOT_FOUND, "unknown service");
}

HealthCall::HealthCall(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue,
                       std::function<void()> on_accept)
    : on_accept_(std::move(on_accept)), stream_(&context_) {
  service->RequestCall(&context_, &stream_, queue, queue, TagOf(Operation::kAccept));
}

bool HealthCall::OnCompletion(Operation operation, bool ok) {
  // A failed operation is the last one: the client or the server has ended.
  if (!ok || operation == Operation::kFinish) return true;
  if (operation == Operation::kRead) {
    Answer();
    return false;
  }
  on_accept_();
  if (context_.method() == kCheck) {
    stream_.Read(&request_, TagOf(Operation::kRead));
  } else {
    stream_.Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""), TagOf(Operation::kFinish));
  }
  return false;
}

void HealthCall::Answer() {
  std::vector<grpc::Slice> slices;
  std::string request;
  if (request_.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) {
      request.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  const grpc::Status status = CheckHealth(request);
  if (!status.ok()) {
    stream_.Finish(status, TagOf(Operation::kFinish));
    return;
  }
  const grpc::Slice answer(kServing, sizeof(kServing) - 1);
  stream_.WriteAndFinish(grpc::ByteBuffer(&answer, 1), grpc::WriteOptions(), status,
                         TagOf(Operation::kFinish));
}

}  // namespace torchbeast
