// Stands in for the CUDA driver so that cuDNN can make a plan without a device.
// It accepts code unread; all calls that need a device fail. So a test can see
// whether cuDNN has a kernel for a graph.

extern "C" {

namespace {
constexpr int kSuccess = 0;
constexpr int kStubLibrary = 34;
}  // namespace

// `place` receives a handle, which nothing reads.
int cuLibraryLoadData(void** place, const void*, void*, void*, unsigned, void*,
                      void*, unsigned) {
  *place = place;
  return kSuccess;
}
int cuLibraryGetKernel(void** place, void*, const char*) {
  *place = place;
  return kSuccess;
}
int cuLibraryUnload(void*) { return kSuccess; }
int cuKernelGetFunction(void** place, void*) {
  *place = place;
  return kSuccess;
}
int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
int cuKernelGetAttribute(int* value, int, void*, int) {
  *value = 0;
  return kSuccess;
}
int cuFuncSetAttribute(void*, int, int) { return kSuccess; }

#define ATL_FAILS(name) \
  int name() { return kStubLibrary; }
ATL_FAILS(cuCtxGetCurrent)
ATL_FAILS(cuCtxGetLimit)
ATL_FAILS(cuCtxPopCurrent)
ATL_FAILS(cuCtxPushCurrent)
ATL_FAILS(cuDeviceGet)
ATL_FAILS(cuDeviceGetCount)
ATL_FAILS(cuDriverGetVersion)
ATL_FAILS(cuGetErrorName)
ATL_FAILS(cuGetErrorString)
ATL_FAILS(cuLaunchCooperativeKernel)
ATL_FAILS(cuLaunchKernel)
ATL_FAILS(cuLaunchKernelEx)
ATL_FAILS(cuLibraryLoadFromFile)
ATL_FAILS(cuLinkAddData)
ATL_FAILS(cuLinkComplete)
ATL_FAILS(cuLinkCreate)
ATL_FAILS(cuLinkDestroy)
ATL_FAILS(cuOccupancyMaxPotentialClusterSize)
ATL_FAILS(cuStreamGetCtx)

}  // extern "C"
