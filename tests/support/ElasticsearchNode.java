import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import org.elasticsearch.Build;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.cluster.metadata.IndexNameExpressionResolver;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.cluster.service.ClusterService;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.IndexScopedSettings;
import org.elasticsearch.common.settings.Setting;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.settings.SettingsFilter;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.index.IndexService;
import org.elasticsearch.index.IndexVersion;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.plugins.PluginsLoader;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestController;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;

/**
 * One Elasticsearch node out of the jars of Maven Central, for tests and development:
 * ElasticsearchNode.java HOME HTTP_PORT NETTY_JARS
 *
 * The distribution's modules are not on Maven Central. What a node cannot do without is laid out in HOME as the
 * distribution does: its transport, and a stand-in for GET /.
 */
public class ElasticsearchNode {
    private static final String NAME = "local";

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]).toAbsolutePath();
        for (String folder : List.of("config", "plugins", "logs", "data")) {
            Files.createDirectories(home.resolve(folder));
        }
        layOutTransport(home, Path.of(arguments[2]));
        layOutRoot(home);
        Settings settings = settings(home, arguments[1]);
        LogConfigurator.registerErrorListener();
        LogConfigurator.setNodeName(NAME);
        LogConfigurator.configureWithoutConfig(settings);
        LogConfigurator.configureESLogging();
        var environment =
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), home.resolve("config"), () -> NAME);
        var modules = PluginsLoader.loadModulesBundles(environment.modulesDir());
        var plugins = PluginsLoader.loadPluginsBundles(environment.pluginsDir());
        Node node = new Node(environment, PluginsLoader.createPluginsLoader(modules, plugins, Map.of(), false));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
        node.start();
        Thread.currentThread().join();
    }

    private static Settings settings(Path home, String port) {
        return Settings.builder()
            .put("path.home", home.toString())
            .put("path.data", home + "/data")
            .put("path.logs", home + "/logs")
            .put("cluster.name", NAME)
            .put("node.name", NAME)
            .put("discovery.type", "single-node")
            .put("network.host", "127.0.0.1")
            .put("http.port", port)
            .put("transport.port", "0")
            .put("transport.type", "netty4")
            .put("http.type", "netty4")
            .put("action.auto_create_index", false)
            // A developer's disk may be nearly full: shards would have no place, and merges would wait for ever.
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .put("indices.merge.disk.check_interval", "0")
            .build();
    }

    private static void close(Node node) {
        try {
            node.prepareForClose();
            node.close();
        } catch (IOException error) {
            error.printStackTrace();
        }
    }

    private static void layOutTransport(Path home, Path jars) throws IOException {
        Path folder = module(home, "transport-netty4", "org.elasticsearch.transport.netty4.Netty4Plugin");
        try (var found = Files.newDirectoryStream(jars, "*.jar")) {
            for (Path jar : found) {
                Files.copy(jar, folder.resolve(jar.getFileName()), StandardCopyOption.REPLACE_EXISTING);
            }
        }
    }

    private static void layOutRoot(Path home) throws IOException {
        Path jar = module(home, "rest-root", "ElasticsearchNode$RootPlugin").resolve("rest-root.jar");
        // Run from its source this class is not on the class path; were it there twice, the node would refuse it.
        try (var stream = new JarOutputStream(Files.newOutputStream(jar))) {
            for (String name : List.of("ElasticsearchNode$RootPlugin.class", "ElasticsearchNode$Root.class")) {
                stream.putNextEntry(new JarEntry(name));
                try (var content = ElasticsearchNode.class.getClassLoader().getResourceAsStream(name)) {
                    content.transferTo(stream);
                }
                stream.closeEntry();
            }
        }
    }

    private static Path module(Path home, String name, String classname) throws IOException {
        Path folder = Files.createDirectories(home.resolve("modules").resolve(name));
        String version = Build.current().version();
        String descriptor = String.join(
            "\n",
            "name=" + name,
            "description=" + name,
            "version=" + version,
            "elasticsearch.version=" + version,
            "java.version=17",
            "classname=" + classname,
            ""
        );
        Files.writeString(folder.resolve("plugin-descriptor.properties"), descriptor);
        return folder;
    }

    /** GET / and HEAD /, which clients ask to know whom they talk to. */
    public static class RootPlugin extends Plugin implements ActionPlugin {
        private ClusterService cluster;

        @Override
        public Collection<?> createComponents(PluginServices services) {
            cluster = services.clusterService();
            return List.of();
        }

        /** As Elastic's own tests do: else an index holds what was deleted for half a minute. */
        @Override
        public List<Setting<?>> getSettings() {
            return List.of(IndexService.RETENTION_LEASE_SYNC_INTERVAL_SETTING);
        }

        @Override
        public Collection<RestHandler> getRestHandlers(
            Settings settings,
            NamedWriteableRegistry registry,
            RestController controller,
            ClusterSettings clusterSettings,
            IndexScopedSettings indexSettings,
            SettingsFilter filter,
            IndexNameExpressionResolver resolver,
            Supplier<DiscoveryNodes> nodes,
            Predicate<NodeFeature> features
        ) {
            return List.of(new Root(cluster));
        }
    }

    /** What the distribution's module of this name answers. */
    public static class Root extends BaseRestHandler {
        private final ClusterService cluster;

        Root(ClusterService cluster) {
            this.cluster = cluster;
        }

        @Override
        public String getName() {
            return "main_action";
        }

        @Override
        public List<Route> routes() {
            return List.of(new Route(RestRequest.Method.GET, "/"), new Route(RestRequest.Method.HEAD, "/"));
        }

        @Override
        protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) {
            return channel -> {
                Build build = Build.current();
                var body = channel.newBuilder()
                    .startObject()
                    .field("name", cluster.getNodeName())
                    .field("cluster_name", cluster.getClusterName().value())
                    .field("cluster_uuid", cluster.state().metadata().clusterUUID())
                    .startObject("version")
                    .field("number", build.qualifiedVersion())
                    .field("build_flavor", build.flavor())
                    .field("build_type", build.type().displayName())
                    .field("build_hash", build.hash())
                    .field("build_date", build.date())
                    .field("build_snapshot", build.isSnapshot())
                    .field("lucene_version", IndexVersion.current().luceneVersion().toString())
                    .field("minimum_wire_compatibility_version", build.minWireCompatVersion())
                    .field("minimum_index_compatibility_version", build.minIndexCompatVersion())
                    .endObject()
                    .field("tagline", "You Know, for Search")
                    .endObject();
                channel.sendResponse(new RestResponse(RestStatus.OK, body));
            };
        }
    }
}
