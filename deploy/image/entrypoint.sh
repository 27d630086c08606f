#!/bin/sh
# Runs what it is told. Spark on Kubernetes tells `executor` and says the rest by variables; `spark-master` and
# `spark-worker MASTER` are a standalone cluster's.
set -eu
home=$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
export SPARK_HOME="$home"

case "${1:-}" in
executor)
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ... in their order; a value may hold blanks.
    set --
    number=0
    while option=$(printenv "SPARK_JAVA_OPT_$number"); do
        set -- "$@" "$option"
        number=$((number + 1))
    done
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$home/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
spark-master)
    exec "$home/bin/spark-class" org.apache.spark.deploy.master.Master --host "$(hostname)" --port 7077
    ;;
spark-worker)
    exec "$home/bin/spark-class" org.apache.spark.deploy.worker.Worker --work-dir /opt/idgraph/work "$2"
    ;;
*)
    exec "$@"
    ;;
esac
