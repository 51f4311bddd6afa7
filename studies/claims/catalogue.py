"""All claims, in the order of the table."""

from studies.claims import clusters
from studies.claims.claim import Claim
from studies.claims.energy import energy_changes
from studies.claims.stations import compass_changes, dysta_changes, sgprs_changes
from studies.claims.synergy_mixes import synergy_changes

CLAIMS = (
    Claim(
        system="Tiresias",
        published="NSDI 2019: mean JCT up to 5.5 times shorter than with YARN, comparable to SRTF",
        measure=clusters.tiresias_changes,
        reason="the generated trace has less of a queue than the production cluster of the paper",
    ),
    Claim(
        system="Optimus",
        published="EuroSys 2018: JCT 139 % and makespan 63 % better than with DRF and Tetris",
        measure=clusters.optimus_changes,
        reason="held to its form in Pollux' evaluation, job by job, where it is the weakest of "
        "three; the paper's rivals choose no number of workers, Tiresias' jobs come tuned",
    ),
    Claim(
        system="Pollux",
        published="OSDI 2021: mean JCT 37 % to 50 % shorter than with Tiresias and Optimus",
        measure=clusters.pollux_changes,
        reason="oracles 7 to 11 have all published workloads",
    ),
    Claim(
        system="Synergy",
        published="OSDI 2022: mean JCT up to 3.4 times shorter than with proportional shares",
        measure=synergy_changes,
        reason="the gain is that of the mix: none without image models, most where many need CPUs "
        "and the cluster is idle. 3.4 times would need a higher speed-up than the public profiles "
        "have (2.94), or a queue that only proportional shares build up",
    ),
    Claim(
        system="SJF-BSBF",
        published="mean JCT 27 % to 33 % shorter than with preemptive schedulers, and up to 17 % "
        "than with SJF-FFS",
        measure=clusters.sjf_bsbf_changes,
        reason="slow-downs are those of Gavel's pairs on a V100, the authors' own are not public",
    ),
    Claim(
        system="Themis",
        published="NSDI 2020: fairness 2.25 times better, 5 % to 250 % more efficient",
        measure=clusters.themis_changes,
        reason="Gavel's form: the worst fairness is minimal by bisection, so an auction of bids "
        "could only come near it. Bids of placements, which make the paper's cluster efficient, "
        "need jobs whose speed depends on placement",
    ),
    Claim(
        system="Gandiva",
        published="OSDI 2018: cluster utilisation 26 % better",
        measure=clusters.gandiva_changes,
        reason="packing and time slices alone. Migration frees nothing in Gavel's table, whose "
        "speeds do not depend on nodes, and the table has no speeds at other numbers of GPUs to "
        "grow to",
    ),
    Claim(
        system="AntMan",
        published="OSDI 2020: GPU memory 42 % and compute 34 % more in use, without unfairness",
        measure=clusters.antman_changes,
        reason="the device side is a model of slow-down; utilisation is seen as shorter makespan",
    ),
    Claim(
        system="Chronus",
        published="SoCC 2021: up to 14.7 times fewer missed deadlines, and up to 19.9 times "
        "shorter JCT of best effort",
        measure=clusters.chronus_changes,
        reason="against EDF with consolidated jobs; a job that is not admitted misses its deadline",
    ),
    Claim(
        system="ANDREAS",
        published="cost 30 % to 62 % lower than with first-principle methods",
        measure=clusters.andreas_changes,
        reason="FIFO and EDF here choose no GPU models. With ANDREAS' configurations in their "
        "order the price is no higher, and lower at the higher loads: the gain is that of the "
        "configurations, not of the search, whose price ends with the first job",
    ),
    Claim(
        system="A_online",
        published="MobiHoc 2020: shorter total completion time of heterogeneous jobs",
        measure=clusters.a_online_changes,
        reason="a reconstruction from the abstract: a job waits for the end of a window that "
        "doubles, which bounds the worst case and costs the mean",
    ),
    Claim(
        system="BFTrainer",
        published="training on idle nodes at up to 93 % of the efficiency of dedicated ones",
        measure=clusters.bftrainer_changes,
        reason="absences are drawn, since no trace of idle nodes is public",
    ),
    Claim(
        system="Decima-distilled",
        published="a small tree is faithful to a learned policy, and better with added heuristics",
        measure=clusters.decima_changes,
        reason="faithful in choices (oracle 27: 93 %), but the few that differ are those that "
        "matter; the teacher is ours and itself slower than fair shares",
    ),
    Claim(
        system="SGPRS",
        published="DATE 2024: partitions switch without reconfiguration; more deadlines met, and "
        "no loss of performance beyond the pivot",
        measure=sgprs_changes,
        reason="the switch pays where tasks are unlike and the GPU can serve them all. Beyond the "
        "pivot the rate stays, but with unlike tasks more frames are late than with bound ones "
        "in two pools, since long tasks then delay short ones",
    ),
    Claim(
        system="Sparse-DySta",
        published="MICRO 2023: up to 10 % fewer violations, turnaround nearly 4 times shorter",
        measure=dysta_changes,
        reason="sparsity is a log-normal factor; the published latency tables are not usable. "
        "4 times is reached against FCFS from a load of 0.9 on",
    ),
    Claim(
        system="Compass",
        published="lower latency with the same or fewer resources",
        measure=compass_changes,
        reason="against a worker by hash. Where one model fits a worker and there are more models "
        "than workers, every plan evicts, and a bound worker does so less often",
    ),
    Claim(
        system="QSSF (Helios)",
        published="SC 2021: mean JCT up to 6.5 times shorter, by predicted durations",
        measure=clusters.qssf_changes,
        reason="durations are predicted by model and number of GPUs alone; the published forest "
        "also reads users and names of jobs, which no trace here has",
    ),
    Claim(
        system="Tsenos et al.",
        published="energy-efficient scheduling of serverless functions: least energy within the "
        "performance that applications demand",
        measure=energy_changes,
        reason="the planner with watts as prices. Prices of vCPUs and GPUs are in about the same "
        "proportion as their watts, so plans by prices need hardly more energy. Profiles have one "
        "clock frequency, so the published frequency scaling is missing",
    ),
    Claim(
        system="OASiS",
        published="INFOCOM 2018: more utility than common schedulers by online admission and "
        "elastic workers, with a competitive ratio",
        measure=clusters.oasis_changes,
        reason="a reconstruction from the abstract and what is known of the algorithm, on "
        "generated jobs. Its low price is the one with the competitive ratio: at twice the "
        "capacity early jobs reserve nearly all before prices matter, while SRTF preempts. A "
        "higher one keeps more for later jobs and refuses more where the cluster is not full",
    ),
    Claim(
        system="Cicada",
        published="serverless inference starts faster by a pipeline of loading and construction",
        reason="acts inside the process that loads a model; a scheduler sees a shorter cold start, "
        "which is a number of a profile",
    ),
    Claim(
        system="PipeDream-2BW",
        published="memory-efficient pipelines for one training job",
        reason="a system for one training job, without a queue or a placement of jobs",
    ),
    Claim(
        system="Miriam",
        published="elastic kernels on edge GPUs",
        reason="acts inside kernels, which a scheduler of pods never sees",
    ),
    Claim(
        system="PAC-ML",
        published="full parallelism is not optimal for throughput and blocking",
        reason="a trained agent partitions the operator graph of one job",
    ),
    Claim(
        system="Dynamic Split Computing",
        published="the split point follows channel and server load",
        reason="there is no tier of devices here",
    ),
    Claim(
        system="SALIENT++ and FusionLLM",
        published="faster distributed training of one model",
        reason="systems for one training job, without a queue or a placement of jobs",
    ),
    Claim(
        system="DeepPool",
        published="burst parallelism by layer; idle slices run background jobs",
        reason="needs profiles of layers, of which none are public",
    ),
)
