//! Performance counters (GPM).

use nvml_wrapper_sys::bindings as sys;

use super::base::{Gpu, Raw, call};
use crate::dialect::nvml::code::{Answer, Code};

/// Most metrics in one request.
const METRICS_MAX: usize = 210;

/// A snapshot of the GPU's performance counters.
pub(crate) struct GpmSample {
    sample: sys::nvmlGpmSample_t,
    raw: &'static Raw,
}

// SAFETY: a sample is memory that NVML allots; it is used by one thread at a time.
unsafe impl Send for GpmSample {}

impl Drop for GpmSample {
    fn drop(&mut self) {
        let _freed = call!(self.raw, nvmlGpmSampleFree(self.sample));
    }
}

/// A request for the changes between two samples.
pub(crate) struct GpmRequest(Box<sys::nvmlGpmMetricsGet_t>);

// SAFETY: plain memory; its pointers are set anew for every call.
unsafe impl Send for GpmRequest {}

impl GpmRequest {
    /// For these metrics, at most 210.
    pub(crate) fn new(ids: impl Iterator<Item = u32>) -> Self {
        // SAFETY: a plain C struct of integers, floats and pointers.
        let mut request: Box<sys::nvmlGpmMetricsGet_t> = Box::new(unsafe { std::mem::zeroed() });
        request.version = sys::NVML_GPM_METRICS_GET_VERSION;
        for (metric, id) in request.metrics.iter_mut().zip(ids.take(METRICS_MAX)) {
            metric.metricId = id;
            request.numMetrics += 1;
        }
        Self(request)
    }

    /// Id and answer of each metric.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (u32, Answer<f64>)> {
        let metrics = self.0.metrics.iter().take(self.0.numMetrics as usize);
        metrics.map(|metric| (metric.metricId, Code::check(metric.nvmlReturn).map(|()| metric.value)))
    }
}

impl Raw {
    pub(crate) fn gpm_is_supported(&self, gpu: Gpu) -> Answer<bool> {
        let mut support =
            sys::nvmlGpmSupport_t { version: sys::NVML_GPM_SUPPORT_VERSION, isSupportedDevice: 0 };
        call!(self, nvmlGpmQueryDeviceSupport(gpu.0, &raw mut support))?;
        Ok(support.isSupportedDevice != 0)
    }

    pub(crate) fn gpm_sample(&'static self) -> Answer<GpmSample> {
        let mut sample = std::ptr::null_mut();
        call!(self, nvmlGpmSampleAlloc(&raw mut sample))?;
        Ok(GpmSample { sample, raw: self })
    }

    /// Takes a sample of a GPU, or of one of its GPU instances.
    pub(crate) fn gpm_take(&self, gpu: Gpu, instance: Option<u32>, into: &mut GpmSample) -> Answer<()> {
        match instance {
            None => call!(self, nvmlGpmSampleGet(gpu.0, into.sample)),
            Some(instance) => call!(self, nvmlGpmMigSampleGet(gpu.0, instance, into.sample)),
        }
    }

    pub(crate) fn gpm_between(
        &self,
        from: &GpmSample,
        to: &GpmSample,
        request: &mut GpmRequest,
    ) -> Answer<()> {
        request.0.sample1 = from.sample;
        request.0.sample2 = to.sample;
        call!(self, nvmlGpmMetricsGet(&raw mut *request.0))
    }
}
